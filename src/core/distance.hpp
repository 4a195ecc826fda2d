// How far away the other ranks' cores are, in time: how long it takes to read a line that one of them has just written.
//
// Cores that share a cache do it in some 30 ns, others in 100 and more; in a virtual machine, or where ranks are not
// bound to cores, it changes. It decides how a rank writes what others will read. In a cache that all share, they find
// it there. Otherwise each line goes to and fro: whoever writes it fetches it from who read it last, and the next reader
// from there. Then it takes half the time to write it past the caches, to memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "segment.hpp"

namespace farandole {

inline constexpr std::int64_t kFarNs = 70;   // whoever takes longer to read a line is far away,
inline constexpr std::int64_t kNearNs = 55;  // until it takes no longer than this

class Distances {
 public:
  // `said` is whether other ranks are far away, whatever they seem to be.
  Distances(std::shared_ptr<Segment> segment, int rank, std::optional<bool> said);

  // Count one more call that is not short, of so many bytes; whether the ranks find out in it. It is the same on all.
  bool is_due(std::uint64_t bytes);
  // Write the lines that others will read.
  void leave_trail() const;
  // Read those of one of `count` ranks who have left their trails in this call: the one not read for longest.
  void follow_one(const std::int64_t* peers, std::size_t count);

  // Whether one of the ranks is far away of which it is known, or all of them are said to be; and this processor can
  // write past its caches. A rank that has not read from others lately, as the root of broadcasts, goes by what they
  // have found, or were told. From any thread.
  bool far() const { return far_.load(std::memory_order_relaxed); }
  // How many ns it takes to read a line of each rank; 0 where that is not known. From any thread.
  std::vector<std::int64_t> ns() const;

 private:
  static constexpr std::size_t kKept = 5;
  struct Seen {
    std::array<std::int64_t, kKept> last{};  // ns per line
    std::size_t count = 0;
    std::uint64_t tried = 0, when = 0;       // in which due calls of this rank that was last tried, and found out
    std::atomic<std::int64_t> median{0};  // of the last: now and then one takes long
  };

  std::int64_t line_ns(int rank) const;
  // To read a line of the farthest rank, as far as this one has found out lately or was told; 0 if it knows none.
  std::int64_t own_farthest_ns() const;
  void decide();

  std::shared_ptr<Segment> segment_;
  int rank_;
  std::optional<bool> said_;
  std::vector<Seen> seen_;  // of each rank
  std::int64_t clock_costs_ns_;
  std::uint64_t calls_ = 0, due_ = 0;
  std::atomic<bool> far_;
};

}  // namespace farandole
