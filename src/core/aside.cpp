#include "aside.hpp"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace farandole {
namespace {

constexpr int kTimes = 8;       // one right after the other: before that, it may be chance
constexpr int kPatience = 500;  // times more, where others are busy
constexpr auto kLookEvery = std::chrono::milliseconds(5);  // each look may bring the ranks out of step for some calls
constexpr std::size_t kMostCores = 8192;

// A set of cores, as the kernel has it.
struct Cores {
  Cores() : memory(CPU_ALLOC_SIZE(kMostCores) / sizeof(unsigned long)) {}
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(memory.data()); }
  std::size_t bytes() const { return memory.size() * sizeof(unsigned long); }
  bool is_empty() { return CPU_COUNT_S(bytes(), set()) == 0; }
  bool has(std::size_t core) { return CPU_ISSET_S(core, bytes(), set()); }
  void add(std::size_t core) { CPU_SET_S(core, bytes(), set()); }

  std::vector<unsigned long> memory;
};

// The cores that share the last cache with that one, as the kernel lists them: "0-3,8-11"; none where it does not.
Cores neighbours(std::uint32_t core) {
  Cores found;
  std::ifstream list("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index3/shared_cpu_list");
  std::string range;
  while (std::getline(list, range, ',')) {
    char* end = nullptr;
    auto first = std::strtoul(range.c_str(), &end, 10), last = *end == '-' ? std::strtoul(end + 1, nullptr, 10) : first;
    for (auto each = first; each <= last && each < kMostCores; ++each) found.add(each);
  }
  return found;
}

// Of the allowed cores those that the fewest ranks are on, near `here` if there is one; none if all are on as many as here,
// or one less.
Cores better_than(std::uint32_t here, Cores& allowed, const std::vector<int>& ranks_on) {
  int fewest = INT_MAX;
  for (std::size_t core = 0; core < ranks_on.size(); ++core) {
    if (allowed.has(core)) fewest = std::min(fewest, ranks_on[core]);
  }
  Cores best;
  if (fewest > ranks_on[here] - 2) return best;
  for (std::size_t core = 0; core < ranks_on.size(); ++core) {
    if (allowed.has(core) && ranks_on[core] == fewest) best.add(core);
  }
  Cores near = neighbours(here);
  CPU_AND_S(near.bytes(), near.set(), near.set(), best.set());
  return near.is_empty() ? best : near;
}

}  // namespace

Aside::Aside(std::shared_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)),
      rank_(rank),
      ranks_on_(std::clamp(static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_CONF)), std::size_t{1}, kMostCores)) {}

void Aside::show() const {
  segment_->line(rank_).core.store(static_cast<std::uint32_t>(sched_getcpu() + 1), std::memory_order_relaxed);
}

bool Aside::is_time_to_look(int peer, Spread spread, Clock::time_point now, std::uint32_t here) {
  if (spread == Spread::evenly) return now >= next_look_;
  bool are_together = segment_->line(peer).core.load(std::memory_order_relaxed) == here + 1;
  together_ = are_together ? together_ + 1 : 0;
  return together_ >= kTimes;
}

void Aside::before_yielding(int peer, Spread spread, Clock::time_point now) {
  if (spread == Spread::as_it_is) return;
  auto core = sched_getcpu();
  if (core < 0 || static_cast<std::size_t>(core) >= ranks_on_.size()) return;
  auto here = static_cast<std::uint32_t>(core);
  if (!is_time_to_look(peer, spread, now, here)) return;
  together_ = 0;
  next_look_ = now + kLookEvery;
  std::fill(ranks_on_.begin(), ranks_on_.end(), 0);
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    auto its = segment_->line(rank).core.load(std::memory_order_relaxed) - 1;
    if (its == here && rank > rank_) return;  // who is to go, if any
    if (its < ranks_on_.size()) ++ranks_on_[its];
  }
  Cores allowed;
  if (sched_getaffinity(0, allowed.bytes(), allowed.set()) != 0) return;
  Cores better = better_than(here, allowed, ranks_on_);
  if (better.is_empty()) return;
  if (are_others_busy(*segment_, spread)) {
    together_ = -kPatience;
    return;
  }
  // To go there at once; afterwards this thread may be wherever it could be before.
  if (sched_setaffinity(0, better.bytes(), better.set()) == 0) sched_setaffinity(0, allowed.bytes(), allowed.set());
}

}  // namespace farandole
