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

}  // namespace

void wake(Line& line) { syscall(SYS_futex, low_half(line), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

void announce(Line& line, std::uint64_t value) {
  // Sequentially consistent, so that either we see the sleeper or the sleeper sees the new value.
  line.counter.exchange(value, std::memory_order_seq_cst);
  if (line.sleepers.load(std::memory_order_seq_cst) != 0) wake(line);
}

void sleep_on(Line& line, std::uint64_t seen) {
  line.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (line.counter.load(std::memory_order_seq_cst) == seen) {
    timespec limit{0, 20'000'000};
    syscall(SYS_futex, low_half(line), FUTEX_WAIT, static_cast<std::uint32_t>(seen), &limit, nullptr, 0);
  }
  line.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void find_dead(const std::vector<int>& process_fds, std::vector<bool>& dead) {
  std::vector<pollfd> asked;
  for (int fd : process_fds) asked.push_back({fd, POLLIN, 0});  // poll skips negative ones
  if (poll(asked.data(), asked.size(), 0) <= 0) return;
  for (std::size_t rank = 0; rank < asked.size(); ++rank) dead[rank] = (asked[rank].revents & POLLIN) != 0;
}

}  // namespace farandole
