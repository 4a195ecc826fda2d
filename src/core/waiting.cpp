#include "waiting.hpp"

#include <bit>
#include <climits>

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace farandole {
namespace {

// A futex is 32 bits wide: the half of the counter that changes with every announcement.
std::uint32_t* low_half(Line& line) {
  auto* halves = reinterpret_cast<std::uint32_t*>(&line.counter);
  return halves + (std::endian::native == std::endian::little ? 0 : 1);
}

void wake_all(std::uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void sleep_while(std::uint32_t* word, std::uint32_t value) {
  timespec limit{0, 20'000'000};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

}  // namespace

void wake(Line& line) { wake_all(low_half(line)); }

void announce(Line& line, std::uint64_t value, bool leaves) {
  // A plain store, which leaves this core together with what was written to the line before; then a fence, so that
  // either we see the sleeper or the sleeper sees the new value.
  line.counter.store(value, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto sleepers = line.sleepers.load(std::memory_order_relaxed);
  if (leaves) sleepers += line.waiters.load(std::memory_order_relaxed);
  if (sleepers != 0) wake(line);
}

void sleep_on(Line& line, std::uint64_t seen, Until until) {
  auto& asleep = until == Until::room ? line.waiters : line.sleepers;
  asleep.fetch_add(1, std::memory_order_seq_cst);
  if (line.counter.load(std::memory_order_seq_cst) == seen) sleep_while(low_half(line), static_cast<std::uint32_t>(seen));
  asleep.fetch_sub(1, std::memory_order_seq_cst);
}

void ring(Bell& bell) {
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  if (bell.listeners.load(std::memory_order_seq_cst) != 0) wake_all(reinterpret_cast<std::uint32_t*>(&bell.rings));
}

void listen(Bell& bell, std::uint32_t seen) {
  bell.listeners.fetch_add(1, std::memory_order_seq_cst);
  if (bell.rings.load(std::memory_order_seq_cst) == seen) sleep_while(reinterpret_cast<std::uint32_t*>(&bell.rings), seen);
  bell.listeners.fetch_sub(1, std::memory_order_seq_cst);
}

void find_dead(const std::vector<int>& process_fds, std::vector<bool>& dead) {
  std::vector<pollfd> asked;
  for (int fd : process_fds) asked.push_back({fd, POLLIN, 0});  // poll skips negative ones
  if (poll(asked.data(), asked.size(), 0) <= 0) return;
  for (std::size_t rank = 0; rank < asked.size(); ++rank) dead[rank] = (asked[rank].revents & POLLIN) != 0;
}

}  // namespace farandole
