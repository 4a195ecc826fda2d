#include "load.hpp"

#include <climits>
#include <fstream>
#include <string>

#include <unistd.h>

namespace farandole {
namespace {

// How many tasks of the whole machine run or want to; more than any if the kernel does not say.
long running_tasks() {
  std::ifstream load("/proc/loadavg");  // "0.20 0.18 0.12 2/80 11206"
  std::string average;
  long tasks = 0;
  return load >> average >> average >> average >> tasks ? tasks : LONG_MAX;
}

}  // namespace

bool are_others_busy(const Segment& segment, Spread spread) {
  auto expected = sysconf(_SC_NPROCESSORS_ONLN);
  if (spread == Spread::evenly) {
    expected = segment.ranks();
    for (int rank = 0; rank < segment.ranks(); ++rank) {
      auto& line = segment.line(rank);
      expected -= line.sleepers.load(std::memory_order_relaxed) + line.waiters.load(std::memory_order_relaxed);
    }
  }
  return running_tasks() > expected;
}

}  // namespace farandole
