// Ranks that are badly spread over the cores, which the kernel puts up with for 10 ms to seconds, since each rank has
// only just run, or sleeps again and again:
//
//   - Two on one core, while another is free. Whenever one waits, it must give the core away for the other to go on, and
//     a short call takes five times as long.
//   - More ranks than cores, and three on one core where another has one. Then all wait for the three, and calls of any
//     length take up to twice as long.
//
// So the rank with the highest number steps aside: to the core that the fewest ranks are on. Not where others keep the
// cores busy, for then the kernel has its reasons.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "load.hpp"
#include "segment.hpp"
#include "waiting.hpp"

namespace farandole {

class Aside {
 public:
  Aside(std::shared_ptr<Segment> segment, int rank) : segment_(std::move(segment)), rank_(rank) {}

  // Say on which core this rank is.
  void show() const;
  // A rank has come while this one was looking, so they are not on one core.
  void met() { together_ = 0; }
  // This rank has looked for `peer` for a while, and is about to give its core away. True if it has moved.
  bool before_yielding(int peer, Spread spread, Clock::time_point now);

 private:
  bool is_often_with(int peer, std::uint32_t here);
  bool is_to_go(std::uint32_t here) const;

  std::shared_ptr<Segment> segment_;
  int rank_;
  int together_ = 0;  // how many times in a row the one waited for was on this core
  Clock::time_point next_look_{};  // at how all are spread, where they are to be so evenly
};

}  // namespace farandole
