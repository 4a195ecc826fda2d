#include "segment.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "waiting.hpp"

namespace farandole {
namespace {

constexpr auto kFilledWithin = std::chrono::milliseconds(20);  // snapshots, unless the rank at it is stopped or dead
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct Places {
  std::size_t lines, histories, bells, snapshots, flights, pipes, trails, small_sets, slots, end;
};

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

Places places(int ranks, std::size_t slot_bytes) {
  if (ranks < 1 || slot_bytes % kPage != 0) {
    throw std::invalid_argument("a segment needs at least one rank and whole pages per slot");
  }
  auto n = static_cast<std::size_t>(ranks);
  Places p{};
  p.lines = round_up(sizeof(Head), 2 * kCacheLine);
  p.histories = p.lines + n * sizeof(Line);
  p.bells = p.histories + n * sizeof(History);
  p.snapshots = p.bells + n * sizeof(Bell);
  p.flights = round_up(p.snapshots + n * sizeof(Snapshot), 2 * kCacheLine);
  p.pipes = round_up(p.flights + n * sizeof(Flight), kPage);
  p.trails = round_up(p.pipes + n * n * sizeof(Pipe), kPage);
  p.small_sets = round_up(p.trails + n * sizeof(Trail), kPage);
  p.slots = round_up(p.small_sets + n * kSmallSets * sizeof(SmallSet), kPage);
  if (slot_bytes != 0 && n > (SIZE_MAX - p.slots) / slot_bytes) {
    throw std::invalid_argument("a segment of that size does not fit an address space");
  }
  p.end = p.slots + n * slot_bytes;
  return p;
}

}  // namespace

std::size_t Segment::bytes_needed(int ranks, std::size_t slot_bytes) { return places(ranks, slot_bytes).end; }

std::vector<std::size_t> Segment::offsets(int ranks, std::size_t slot_bytes) {
  auto p = places(ranks, slot_bytes);
  return {p.lines, p.flights, p.pipes};
}

Segment::Segment(int fd, int ranks, std::size_t slot_bytes) : ranks_(ranks), slot_bytes_(slot_bytes) {
  auto p = places(ranks, slot_bytes);
  struct stat facts {};
  if (fstat(fd, &facts) != 0) throw std::system_error(errno, std::generic_category(), "fstat of the shared segment");
  if (static_cast<std::size_t>(facts.st_size) < p.end) {
    throw std::invalid_argument("the shared segment has " + std::to_string(facts.st_size) + " bytes, not " +
                                std::to_string(p.end));
  }
  bytes_ = p.end;
  lines_ = p.lines;
  histories_ = p.histories;
  bells_ = p.bells;
  snapshots_ = p.snapshots;
  flights_ = p.flights;
  pipes_ = p.pipes;
  trails_ = p.trails;
  small_sets_ = p.small_sets;
  slots_ = p.slots;
  void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of the shared segment");
  base_ = static_cast<std::byte*>(mapped);
  madvise(mapped, bytes_, MADV_DONTFORK);
  if (bytes_ >= 2 * kHugePage) madvise(mapped, bytes_, MADV_HUGEPAGE);  // a wish; refusal costs nothing but speed
  head().magic = kMagic;
  head().ranks = static_cast<std::uint32_t>(ranks);
  head().version = kVersion;
  head().slot_bytes = slot_bytes;
}

void Segment::break_with(int rank, int peer, Failure failure, bool in_a_call) const {
  auto part = [](int value) { return static_cast<std::uint64_t>(static_cast<std::uint16_t>(value + 1)); };
  if (head().claimed.exchange(1) == 0) {
    auto differing = in_a_call && failure == Failure::mismatch ? first_to_differ(rank) : 0;
    for (int each = 0; each < ranks_; ++each) {
      auto call = line(each).entered.load(std::memory_order_acquire);
      if (differing != 0) call = std::min(call, differing);
      snapshot(each) = {call, line(each).left.load(), call == 0 ? CallText{} : text(each, call)};
    }
    head().filled.store(1, std::memory_order_release);
  } else {
    // Somebody else was first, and has the word; unless it dies, or is stopped, before it has said anything.
    auto limit = Clock::now() + kFilledWithin;
    while (head().failure.load(std::memory_order_acquire) == 0 && Clock::now() < limit) sched_yield();
  }
  auto packed = part(rank) << 40 | part(peer) << 16 | static_cast<std::uint64_t>(failure);
  std::uint64_t none = 0;
  if (!head().failure.compare_exchange_strong(none, packed, std::memory_order_seq_cst)) return;
  for (int each = 0; each < ranks_; ++each) {
    wake(line(each));
    ring(bell(each));
  }
}

// The first call, of those that none has forgotten, in which the fingerprints of ranks that have entered it differ; 0 for
// none. A rank that needed nothing of the others may be further on when it is found out, and one that is slow not there.
std::uint64_t Segment::first_to_differ(int asks) const {
  std::vector<std::uint64_t> entered;
  for (int each = 0; each < ranks_; ++each) entered.push_back(line(each).entered.load(std::memory_order_acquire));
  // While the rank that asks stays where it is, the others can go on so far, and write over what is older than the rest.
  auto mine = entered[static_cast<std::size_t>(asks)];
  auto from = mine > kCalls - kMostAhead ? mine - (kCalls - kMostAhead) + 1 : 1;
  for (auto call = from; call <= mine + kMostAhead; ++call) {
    const std::uint64_t* first = nullptr;
    for (int each = 0; each < ranks_; ++each) {
      if (entered[static_cast<std::size_t>(each)] < call) continue;
      const auto* print = &history(each).fingerprint[call % kCalls];
      if (first != nullptr && *print != *first) return call;
      first = print;
    }
  }
  return 0;
}

Verdict Segment::broken() const {
  auto packed = head().failure.load(std::memory_order_acquire);
  auto failure = static_cast<std::uint32_t>(packed & 0xffff);
  auto peer = static_cast<int>(packed >> 16 & 0xffff) - 1;
  if (packed == 0) return {};
  // Another process has written it: what makes no sense is damage, and whose nobody knows.
  bool is_sound = failure >= 1 && failure <= static_cast<std::uint32_t>(Failure::closed) && peer < ranks_;
  if (!is_sound || (peer < 0 && failure != static_cast<std::uint32_t>(Failure::late))) return {Failure::interrupted, -1};
  return {static_cast<Failure>(failure), peer};
}

int Segment::broken_by() const {
  auto rank = static_cast<int>(head().failure.load(std::memory_order_acquire) >> 40 & 0xffff) - 1;
  return rank < ranks_ ? rank : -1;
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace farandole
