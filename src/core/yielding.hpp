// Giving the core away while waiting. That is the fastest way to let another rank on this core go on. But where a program
// computes beside the ranks, the kernel gives it the core for a whole time slice, some milliseconds, each time; one that
// sleeps it lets run as soon as it is woken. So a thread that has found others computing on a core sleeps there, and tries
// again after a while: after 20 ms, and up to a second where it finds them again and again.
#pragma once

#include "load.hpp"
#include "waiting.hpp"

namespace farandole {

// What a thread that waits has given away so far, in one wait.
struct Yielded {
  Clock::time_point began = Clock::now(), last = began;
};

// Give the core away once, if that is better than to sleep.
bool give_way(Yielded& yielded, const Segment& segment, Spread spread);

}  // namespace farandole
