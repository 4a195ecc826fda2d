// Waiting for another process's counter: spin a little, then yield the core, then sleep in the kernel.
//
// Which of the three comes when decides how a machine with more ranks than cores behaves: with a core for
// each rank, spinning is fastest; without, the rank one waits for may need this very core, so yield at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "load.hpp"
#include "segment.hpp"

namespace farandole {

using Clock = std::chrono::steady_clock;

struct Patience {
  int spins;            // looks at the counter with a pause in between
  int yields;           // looks with sched_yield in between
  int yields_for_room;  // the same, where a rank is many calls ahead, and others will need some time
  Spread spread = Spread::as_it_is;  // what ranks step aside for; and whether a long yield may have been one of them
};

// What a rank that has waited for long looks at besides the counter.
struct Watch {
  Patience patience;
  double timeout_s;
  const std::function<bool()>* interrupted;  // asks whether to give up at once (a signal)
};

// What a rank waits for: the next that another announces; or room for many short calls, which comes at once.
enum class Until { next, room };

// Tell the world that `line.counter` is now `value`. Everything written before is visible to who sees it. `leaves` says
// whether with this the rank leaves a half of the memory, so that others have room.
void announce(Line& line, std::uint64_t value, bool leaves);

// Sleep until `line.counter` may have changed or, for room, a half may have been left; 20 ms at most.
void sleep_on(Line& line, std::uint64_t seen, Until until);

// Wake every rank that sleeps on `line`.
void wake(Line& line);

// Ring a bell, and wake who listens for it.
void ring(Bell& bell);

// Sleep until the bell has rung since `seen`, 20 ms at most.
void listen(Bell& bell, std::uint32_t seen);

// Which ranks have died: `process_fds` has a pidfd per rank, -1 where there is none.
void find_dead(const std::vector<int>& process_fds, std::vector<bool>& dead);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace farandole
