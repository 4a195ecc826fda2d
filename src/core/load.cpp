#include "load.hpp"

#include <climits>
#include <cstdio>
#include <memory>

#include <unistd.h>

namespace farandole {
namespace {

// How many tasks of the whole machine run or want to; more than any if the kernel does not say.
long running_tasks() {
  std::unique_ptr<FILE, int (*)(FILE*)> load(std::fopen("/proc/loadavg", "re"), &std::fclose);
  long tasks = 0;  // "0.20 0.18 0.12 2/80 11206"
  return load && std::fscanf(load.get(), "%*s %*s %*s %ld", &tasks) == 1 ? tasks : LONG_MAX;
}

// How many ranks have not left, and do not sleep in a call.
long ranks_awake(const Segment& segment) {
  long awake = 0;
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    auto& line = segment.line(rank);
    if (line.left.load(std::memory_order_relaxed) == 0) ++awake;
    awake -= static_cast<long>(line.sleepers.load(std::memory_order_relaxed)) + line.waiters.load(std::memory_order_relaxed);
  }
  return awake;
}

}  // namespace

bool are_others_busy(const Segment& segment, Spread spread) {
  return running_tasks() > (spread == Spread::evenly ? ranks_awake(segment) : sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace farandole
