// The memory that the ranks of one communicator share, and where everything lies in it.
//
//   Head                       who broke it, if it is broken
//   Line      x ranks          each rank's counter and call, one cache line each
//   CallText  x ranks x kCalls what each rank's last calls were, for error messages
//   slot      x ranks          the data; written by its rank only, read by all
//
// Everything here is plain memory seen by several processes: only lock-free atomics, no pointers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farandole {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kCalls = 4;       // a rank is at most two calls ahead of another, so four are enough
inline constexpr std::size_t kTextBytes = 192; // of a call's description, zero included

// Why a communicator can no longer be used. The first rank to fail writes it; the others follow.
enum class Failure : std::uint32_t { none = 0, mismatch = 1, lost = 2, late = 3, interrupted = 4, closed = 5 };

struct alignas(kCacheLine) Head {
  std::atomic<std::uint64_t> failure;  // 0, or (rank << 40 | peer << 16 | Failure)
  std::uint32_t ranks;
  std::uint32_t version;
  std::uint64_t slot_bytes;
};

struct alignas(kCacheLine) Line {
  std::atomic<std::uint64_t> counter;   // goes up only: how many stages are done, over all calls
  std::atomic<std::uint64_t> entered;   // the call that the rank is in, or was in last; 0 before the first
  std::atomic<std::uint32_t> sleepers;  // how many ranks sleep until `counter` changes
  std::atomic<std::uint32_t> left;      // 1 once the rank has closed the communicator
  std::uint64_t fingerprint[kCalls];    // of call c at c % kCalls
};
static_assert(sizeof(Line) == kCacheLine);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct CallText {
  char text[kTextBytes];
};

// A view of the mapped segment. Maps in the constructor, unmaps in the destructor.
class Segment {
 public:
  Segment(int fd, int ranks, std::size_t slot_bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  static std::size_t bytes_needed(int ranks, std::size_t slot_bytes);

  Head& head() const { return *reinterpret_cast<Head*>(base_); }
  Line& line(int rank) const { return *reinterpret_cast<Line*>(base_ + lines_ + static_cast<std::size_t>(rank) * sizeof(Line)); }
  CallText& text(int rank, std::uint64_t call) const {
    auto index = static_cast<std::size_t>(rank) * kCalls + call % kCalls;
    return *reinterpret_cast<CallText*>(base_ + texts_ + index * sizeof(CallText));
  }
  std::byte* slot(int rank) const { return base_ + slots_ + static_cast<std::size_t>(rank) * slot_bytes_; }
  int ranks() const { return ranks_; }
  std::size_t slot_bytes() const { return slot_bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  int ranks_;
  std::size_t slot_bytes_;
  std::size_t lines_, texts_, slots_;
};

}  // namespace farandole
