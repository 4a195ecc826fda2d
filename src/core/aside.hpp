// Two ranks on one core, while another one is free: whenever one waits, it must give the core away for the other to go
// on, and a short call takes five times as long. The kernel leaves them there for 10 to 20 ms, since each has only just
// run. So the one with the higher rank steps aside: to a core that none of the ranks is on. Not where others keep all
// cores busy, for then the kernel has its reasons.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "segment.hpp"

namespace farandole {

class Aside {
 public:
  Aside(std::shared_ptr<Segment> segment, int rank) : segment_(std::move(segment)), rank_(rank) {}

  // Say on which core this rank is.
  void show() const;
  // A rank has come while this one was looking, so they are not on one core.
  void met() { together_ = 0; }
  // This rank has looked for `peer` for a while, and is about to give its core away.
  void before_yielding(int peer);

 private:
  void step_from(std::uint32_t here);

  std::shared_ptr<Segment> segment_;
  int rank_;
  int together_ = 0;  // how many times in a row the one waited for was on this core
};

}  // namespace farandole
