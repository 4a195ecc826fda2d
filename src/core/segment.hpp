// The memory that the ranks of one communicator share, and where everything lies in it.
//
//   Head                       who broke it, if it is broken
//   Line      x ranks          each rank's counter and call, one cache line each
//   History   x ranks          which calls each rank has made, further back
//   Bell      x ranks          rung when there is something to do about point-to-point messages
//   Snapshot  x ranks          what each rank was doing when the communicator broke
//   Flight    x ranks          what each rank's last calls were, for error messages and for readers from outside
//   Pipe      x ranks x ranks  from the first rank to the second
//   Trail     x ranks          lines that others read to find out how long that takes
//   SmallSet  x ranks x 32     the data of short calls; written by its rank only, read by all
//   slot      x ranks          and that of all others
//
// Everything here is plain memory seen by several processes: only lock-free atomics, no pointers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "flight.hpp"
#include "pipe.hpp"

namespace farandole {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kSmallSets = 32;         // so many short calls a rank can be ahead of another
inline constexpr std::size_t kSmallSetBytes = 2048;
inline constexpr std::size_t kCallsInLine = 4;  // of which a rank shows the fingerprints where others look anyway
inline constexpr std::size_t kCalls = 64;       // and further back
inline constexpr std::size_t kMostAhead = kSmallSets + 2 + 1;  // all small sets, two calls in the slot, and entering one more
static_assert(kMostAhead < kCalls);
inline constexpr std::uint32_t kVersion = 6;  // of all that follows
inline constexpr std::uint64_t kMagic = 0x656c'6f64'6e61'7261;  // 'arandole': what every segment begins with

// Why a communicator can no longer be used. The first rank to fail writes it; the others follow.
enum class Failure : std::uint32_t { none = 0, mismatch = 1, lost = 2, late = 3, interrupted = 4, closed = 5, forked = 6 };

struct alignas(kCacheLine) Head {
  std::uint64_t magic;
  std::atomic<std::uint64_t> failure;  // 0, or (rank << 40 | peer << 16 | Failure)
  std::atomic<std::uint32_t> claimed;  // 1 once a rank has begun to fill in the snapshots
  std::atomic<std::uint32_t> filled;   // 1 once they are filled in
  std::uint32_t ranks;
  std::uint32_t version;
  std::uint64_t slot_bytes;
};

// How a rank has left.
enum class Left : std::uint32_t { no = 0, closed = 1, failed = 2, shrinks = 3 };

struct alignas(kCacheLine) Line {
  std::atomic<std::uint64_t> counter;   // goes up only: how many stages are done, over all calls
  std::atomic<std::uint64_t> entered;   // the call that the rank is in, or was in last; 0 before the first
  std::atomic<std::uint32_t> sleepers;  // how many ranks sleep until `counter` changes,
  std::atomic<std::uint32_t> waiters;   // and until the rank leaves a half of its small sets
  std::atomic<std::uint32_t> left;      // Left, once the rank makes no more calls
  std::atomic<std::uint32_t> core;      // the number of the core that the rank was on when it entered, and 1; 0: not known
  std::atomic<std::uint64_t> fingerprint[kCallsInLine];  // of all calls up to call c, at c % kCallsInLine
};
static_assert(sizeof(Line) == kCacheLine);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct alignas(kCacheLine) History {
  std::uint64_t fingerprint[kCalls];  // of all calls up to call c, at c % kCalls
};

// The data of one short call of a rank. What fits beside the flag is there when the flag is, in one cache line.
struct alignas(kCacheLine) SmallSet {
  std::atomic<std::uint64_t> flag;  // the rank's history up to the call, once what it publishes first is in its place
  std::byte beside_flag[kCacheLine - sizeof(std::uint64_t)];
  std::byte data[kSmallSetBytes];

  std::byte* places(std::size_t set_bytes) { return set_bytes <= sizeof(beside_flag) ? beside_flag : data; }
};

static_assert(sizeof(SmallSet) == kCacheLine + kSmallSetBytes);

// Lines that a rank writes and others read, one after the other in an order that no processor fetches ahead in.
inline constexpr std::size_t kTrailLines = 6;
inline constexpr std::uint64_t kTrailOrder[kTrailLines] = {0, 3, 1, 4, 2, 5};

struct Trail {
  struct alignas(4 * kCacheLine) Line {
    std::atomic<std::uint64_t> next;
  };
  Line lines[kTrailLines];
  alignas(kCacheLine) std::atomic<std::int64_t> farthest_ns;  // how long it takes the rank to read one of the farthest other
};

struct alignas(kCacheLine) Bell {
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> listeners;  // how many threads sleep until it rings
};

// What a rank was doing when the communicator broke.
struct Snapshot {
  std::uint64_t call;
  std::uint64_t left;
  CallText text;
};

struct Verdict {
  Failure failure = Failure::none;
  int peer = -1;  // whom it is about
};

// A view of the mapped segment. Maps in the constructor, unmaps in the destructor.
class Segment {
 public:
  Segment(int fd, int ranks, std::size_t slot_bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  static std::size_t bytes_needed(int ranks, std::size_t slot_bytes);
  // Where lines and flights begin, and pipes, before which all that is control is; in bytes.
  static std::vector<std::size_t> offsets(int ranks, std::size_t slot_bytes);

  Head& head() const { return *reinterpret_cast<Head*>(base_); }
  Line& line(int rank) const { return *reinterpret_cast<Line*>(base_ + lines_ + static_cast<std::size_t>(rank) * sizeof(Line)); }
  History& history(int rank) const {
    return *reinterpret_cast<History*>(base_ + histories_ + static_cast<std::size_t>(rank) * sizeof(History));
  }
  CallText& text(int rank, std::uint64_t call) const {
    auto& its = flight(rank);
    return its.texts[its.last_calls[call % kRecords].text % kTexts];
  }
  Flight& flight(int rank) const {
    return *reinterpret_cast<Flight*>(base_ + flights_ + static_cast<std::size_t>(rank) * sizeof(Flight));
  }
  // Everything before the pipes, as readers from outside see it.
  std::size_t control_bytes() const { return pipes_; }
  const std::byte* control() const { return base_; }
  Bell& bell(int rank) const { return *reinterpret_cast<Bell*>(base_ + bells_ + static_cast<std::size_t>(rank) * sizeof(Bell)); }
  Pipe& pipe(int from, int to) const {
    auto index = static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to);
    return *reinterpret_cast<Pipe*>(base_ + pipes_ + index * sizeof(Pipe));
  }
  Trail& trail(int rank) const { return reinterpret_cast<Trail*>(base_ + trails_)[rank]; }
  Snapshot& snapshot(int rank) const {
    return *reinterpret_cast<Snapshot*>(base_ + snapshots_ + static_cast<std::size_t>(rank) * sizeof(Snapshot));
  }
  std::byte* slot(int rank) const { return base_ + slots_ + static_cast<std::size_t>(rank) * slot_bytes_; }
  SmallSet& small_set(int rank, std::size_t number) const {
    return reinterpret_cast<SmallSet*>(base_ + small_sets_)[static_cast<std::size_t>(rank) * kSmallSets + number];
  }

  // Break the communicator for all ranks, unless it is broken already, and wake those that wait. `in_a_call` says whether
  // it is the call of `rank` that has failed, so that it stays where it is.
  void break_with(int rank, int peer, Failure failure, bool in_a_call = true) const;
  Verdict broken() const;  // who was to blame, as far as the first rank to fail could tell
  int broken_by() const;   // the rank that failed first, or -1

  int ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

 private:
  std::uint64_t first_to_differ(int asks) const;

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  int ranks_;
  std::size_t slot_bytes_;
  std::size_t lines_, histories_, bells_, snapshots_, flights_, pipes_, trails_, small_sets_, slots_;
};

}  // namespace farandole
