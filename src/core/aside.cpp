#include "aside.hpp"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>

namespace farandole {
namespace {

// To have a core each:
constexpr int kTimes = 8;       // one right after the other: before that, it may be chance
constexpr int kPatience = 500;  // times more, where others are busy
// To be spread evenly; each look may bring the ranks out of step for some calls:
constexpr auto kLookEvery = std::chrono::milliseconds(5);
constexpr auto kLookAgain = std::chrono::milliseconds(100);  // where others are busy

constexpr std::size_t kMostCores = 8192;

// A set of cores, as the kernel has it.
struct Cores {
  Cores() : memory(CPU_ALLOC_SIZE(kMostCores) / sizeof(unsigned long)) {}
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(memory.data()); }
  std::size_t bytes() const { return memory.size() * sizeof(unsigned long); }
  bool is_empty() { return CPU_COUNT_S(bytes(), set()) == 0; }
  // A number above all of theirs.
  std::size_t end() const {
    auto words = memory.size();
    while (words > 0 && memory[words - 1] == 0) --words;
    return words * 8 * sizeof(unsigned long);
  }
  void add_all() { std::fill(memory.begin(), memory.end(), ~0UL); }
  bool has(std::size_t core) { return CPU_ISSET_S(core, bytes(), set()); }
  void add(std::size_t core) { CPU_SET_S(core, bytes(), set()); }

  std::vector<unsigned long> memory;
};

// The cores that share the last cache with that one, as the kernel lists them: "0-3,8-11"; none where it does not.
Cores neighbours(std::uint32_t core) {
  Cores found;
  auto path = "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index3/shared_cpu_list";
  std::unique_ptr<FILE, int (*)(FILE*)> list(std::fopen(path.c_str(), "re"), &std::fclose);
  unsigned long first = 0, last = 0;
  while (list) {
    int numbers = std::fscanf(list.get(), "%lu-%lu", &first, &last);
    if (numbers < 1) break;
    for (auto each = first; each <= (numbers == 1 ? first : last) && each < kMostCores; ++each) found.add(each);
    if (std::fgetc(list.get()) != ',') break;
  }
  return found;
}

// Of the allowed cores those that the fewest ranks are on; none if all are on as many as here, or one less.
Cores better_than(std::uint32_t here, Cores& allowed, const std::vector<int>& ranks_on) {
  int fewest = INT_MAX;
  for (std::size_t core = 0; core < ranks_on.size(); ++core) {
    if (allowed.has(core)) fewest = std::min(fewest, ranks_on[core]);
  }
  Cores best;
  for (std::size_t core = 0; core < ranks_on.size() && fewest <= ranks_on[here] - 2; ++core) {
    if (allowed.has(core) && ranks_on[core] == fewest) best.add(core);
  }
  return best;
}

// To one of `better` at once, near this one if there is one there; afterwards to wherever the thread could be before.
bool move(std::uint32_t here, Cores& better, Cores& allowed) {
  Cores near = neighbours(here);
  CPU_AND_S(near.bytes(), near.set(), near.set(), better.set());
  Cores& to = near.is_empty() ? better : near;
  if (sched_setaffinity(0, to.bytes(), to.set()) != 0) return false;
  if (sched_setaffinity(0, allowed.bytes(), allowed.set()) == 0) return true;
  Cores any;  // what was allowed before no longer is
  any.add_all();
  sched_setaffinity(0, any.bytes(), any.set());
  return true;
}

}  // namespace

void Aside::show() const {
  segment_->line(rank_).core.store(static_cast<std::uint32_t>(sched_getcpu() + 1), std::memory_order_relaxed);
}

// Whether the one waited for has been on this core so many times in a row.
bool Aside::is_often_with(int peer, std::uint32_t here) {
  bool are_together = segment_->line(peer).core.load(std::memory_order_relaxed) == here + 1;
  together_ = are_together ? together_ + 1 : 0;
  return together_ >= kTimes;
}

// Of the ranks that wait on this core the one with the highest number, so that not two go for the same reason.
bool Aside::is_to_go(std::uint32_t here) const {
  for (int rank = rank_ + 1; rank < segment_->ranks(); ++rank) {
    bool is_here = segment_->line(rank).core.load(std::memory_order_relaxed) == here + 1;
    if (is_here && segment_->flight(rank).calls.waits_for.load(std::memory_order_relaxed) >= 0) return false;
  }
  return true;
}

bool Aside::before_yielding(int peer, Spread spread, Clock::time_point now) {
  if (spread == Spread::as_it_is || (spread == Spread::evenly && now < next_look_)) return false;
  auto core = sched_getcpu();
  if (core < 0 || static_cast<std::size_t>(core) >= kMostCores) return false;
  auto here = static_cast<std::uint32_t>(core);
  if (spread == Spread::apart && !is_often_with(peer, here)) return false;
  together_ = 0;
  next_look_ = now + kLookEvery;
  show();
  if (!is_to_go(here)) return false;
  Cores allowed;
  if (sched_getaffinity(0, allowed.bytes(), allowed.set()) != 0) return false;
  std::vector<int> ranks_on(std::max<std::size_t>(allowed.end(), here + 1));
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    auto its = segment_->line(rank).core.load(std::memory_order_relaxed) - 1;
    if (its < ranks_on.size()) ++ranks_on[its];
  }
  Cores better = better_than(here, allowed, ranks_on);
  if (better.is_empty()) return false;
  if (are_others_busy(*segment_, spread)) {
    together_ = -kPatience;
    next_look_ = now + kLookAgain;
    return false;
  }
  bool moved = move(here, better, allowed);
  show();
  return moved;
}

}  // namespace farandole
