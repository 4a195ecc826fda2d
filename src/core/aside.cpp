#include "aside.hpp"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace farandole {
namespace {

constexpr int kTimes = 8;      // one right after the other: before that, it may be chance
constexpr int kPatience = 500;  // times more, where no core has nothing to do
constexpr int kMostCores = 8192;

// A set of cores, as the kernel has it.
struct Cores {
  Cores() : memory(CPU_ALLOC_SIZE(kMostCores) / sizeof(unsigned long)) {}
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(memory.data()); }
  std::size_t bytes() const { return memory.size() * sizeof(unsigned long); }
  bool is_empty() { return CPU_COUNT_S(bytes(), set()) == 0; }

  std::vector<unsigned long> memory;
};

// Whether fewer tasks want to run than there are cores, or as many: then, where two of them are on one, another is idle.
bool is_a_core_idle() {
  std::ifstream load("/proc/loadavg");  // "0.20 0.18 0.12 2/80 11206"
  std::string average;
  long running = 0;
  return (load >> average >> average >> average >> running) && running <= sysconf(_SC_NPROCESSORS_ONLN);
}

// The cores that share the last cache with that one, as the kernel lists them: "0-3,8-11"; none where it does not.
Cores neighbours(std::uint32_t core) {
  Cores found;
  std::ifstream list("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index3/shared_cpu_list");
  std::string range;
  while (std::getline(list, range, ',')) {
    char* end = nullptr;
    auto first = std::strtoul(range.c_str(), &end, 10), last = *end == '-' ? std::strtoul(end + 1, nullptr, 10) : first;
    for (auto each = first; each <= last && each < kMostCores; ++each) CPU_SET_S(each, found.bytes(), found.set());
  }
  return found;
}

}  // namespace

void Aside::show() const {
  segment_->line(rank_).core.store(static_cast<std::uint32_t>(sched_getcpu() + 1), std::memory_order_relaxed);
}

void Aside::before_yielding(int peer) {
  auto here = static_cast<std::uint32_t>(sched_getcpu() + 1);
  if (here == 0 || segment_->line(peer).core.load(std::memory_order_relaxed) != here) {
    together_ = 0;
  } else if (++together_ >= kTimes && peer < rank_) {
    bool can = is_a_core_idle();
    together_ = can ? 0 : -kPatience;
    if (can) step_from(here - 1);
  }
}

// To a free core, near this one if there is one there. Afterwards the thread may be wherever it could be before.
void Aside::step_from(std::uint32_t here) {
  Cores allowed, free;
  if (sched_getaffinity(0, allowed.bytes(), allowed.set()) != 0) return;
  free.memory = allowed.memory;
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    auto core = segment_->line(rank).core.load(std::memory_order_relaxed);
    if (core != 0 && core <= kMostCores) CPU_CLR_S(core - 1, free.bytes(), free.set());
  }
  if (free.is_empty()) return;
  Cores near = neighbours(here);
  CPU_AND_S(near.bytes(), near.set(), near.set(), free.set());
  if (!near.is_empty()) free.memory = near.memory;
  if (sched_setaffinity(0, free.bytes(), free.set()) == 0) sched_setaffinity(0, allowed.bytes(), allowed.set());
}

}  // namespace farandole
