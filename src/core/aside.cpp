#include "aside.hpp"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace farandole {
namespace {

constexpr int kTimes = 8;       // one right after the other: before that, it may be chance
constexpr int kWaits = 64;      // between two looks at how all ranks are spread, which take a microsecond each
constexpr int kPatience = 500;  // waits more, where others are busy
constexpr std::uint32_t kMostCores = 8192;

// A set of cores, as the kernel has it.
struct Cores {
  Cores() : memory(CPU_ALLOC_SIZE(kMostCores) / sizeof(unsigned long)) {}
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(memory.data()); }
  std::size_t bytes() const { return memory.size() * sizeof(unsigned long); }
  bool is_empty() { return CPU_COUNT_S(bytes(), set()) == 0; }
  bool has(std::uint32_t core) { return CPU_ISSET_S(core, bytes(), set()); }
  void add(std::uint32_t core) { CPU_SET_S(core, bytes(), set()); }

  std::vector<unsigned long> memory;
};

// How many tasks of the whole machine run or want to; more than any if the kernel does not say.
long running_tasks() {
  std::ifstream load("/proc/loadavg");  // "0.20 0.18 0.12 2/80 11206"
  std::string average;
  long tasks = 0;
  return load >> average >> average >> average >> tasks ? tasks : LONG_MAX;
}

// The cores that share the last cache with that one, as the kernel lists them: "0-3,8-11"; none where it does not.
Cores neighbours(std::uint32_t core) {
  Cores found;
  std::ifstream list("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index3/shared_cpu_list");
  std::string range;
  while (std::getline(list, range, ',')) {
    char* end = nullptr;
    auto first = std::strtoul(range.c_str(), &end, 10), last = *end == '-' ? std::strtoul(end + 1, nullptr, 10) : first;
    for (auto each = first; each <= last && each < kMostCores; ++each) found.add(static_cast<std::uint32_t>(each));
  }
  return found;
}

// Of the allowed cores those that the fewest ranks are on, near `here` if there is one; none if all are on as many as here,
// or one less.
Cores better_than(std::uint32_t here, Cores& allowed, const std::vector<int>& ranks_on) {
  int fewest = INT_MAX;
  for (std::uint32_t core = 0; core < kMostCores; ++core) {
    if (allowed.has(core)) fewest = std::min(fewest, ranks_on[core]);
  }
  Cores best;
  if (fewest > ranks_on[here] - 2) return best;
  for (std::uint32_t core = 0; core < kMostCores; ++core) {
    if (allowed.has(core) && ranks_on[core] == fewest) best.add(core);
  }
  Cores near = neighbours(here);
  CPU_AND_S(near.bytes(), near.set(), near.set(), best.set());
  return near.is_empty() ? best : near;
}

}  // namespace

void Aside::show() const {
  segment_->line(rank_).core.store(static_cast<std::uint32_t>(sched_getcpu() + 1), std::memory_order_relaxed);
}

bool Aside::is_time_to_look(int peer, Spread spread, std::uint32_t here) {
  if (spread == Spread::evenly) return ++waits_ >= kWaits;
  bool are_together = segment_->line(peer).core.load(std::memory_order_relaxed) == here + 1;
  together_ = are_together ? together_ + 1 : 0;
  return together_ >= kTimes;
}

// Whether more tasks run than should: one for each core or, where there are more ranks, those that do not sleep.
bool Aside::are_others_busy(Spread spread) const {
  auto expected = sysconf(_SC_NPROCESSORS_ONLN);
  if (spread == Spread::evenly) {
    expected = segment_->ranks();
    for (int rank = 0; rank < segment_->ranks(); ++rank) {
      auto& line = segment_->line(rank);
      expected -= line.sleepers.load(std::memory_order_relaxed) + line.waiters.load(std::memory_order_relaxed);
    }
  }
  return running_tasks() > expected;
}

void Aside::before_yielding(int peer, Spread spread) {
  if (spread == Spread::as_it_is) return;
  auto core = sched_getcpu();
  if (core < 0) return;
  auto here = static_cast<std::uint32_t>(core);
  if (!is_time_to_look(peer, spread, here)) return;
  together_ = waits_ = 0;
  std::vector<int> ranks_on(kMostCores);
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    auto its = segment_->line(rank).core.load(std::memory_order_relaxed) - 1;
    if (its == here && rank > rank_) return;  // who is to go, if any
    if (its < kMostCores) ++ranks_on[its];
  }
  Cores allowed;
  if (sched_getaffinity(0, allowed.bytes(), allowed.set()) != 0) return;
  Cores better = better_than(here, allowed, ranks_on);
  if (better.is_empty()) return;
  if (are_others_busy(spread)) {
    together_ = waits_ = -kPatience;
    return;
  }
  // To go there at once; afterwards this thread may be wherever it could be before.
  if (sched_setaffinity(0, better.bytes(), better.set()) == 0) sched_setaffinity(0, allowed.bytes(), allowed.set());
}

}  // namespace farandole
