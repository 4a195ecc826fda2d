#include "yielding.hpp"

#include <algorithm>

#include <sched.h>

namespace farandole {
namespace {

using namespace std::chrono_literals;

constexpr auto kAtMost = 5ms;     // of one wait
constexpr auto kTimeSlice = 1ms;  // no rank takes that long often
constexpr auto kFirstBreak = 20ms, kLongestBreak = 1000ms;
constexpr int kShortOnes = 64;    // in a row: then nobody computes here

// What this thread has found on one core.
struct Found {
  Clock::time_point resumes{};  // when it tries again
  Clock::duration next_break = kFirstBreak;
  int short_ones = 0;
};
constexpr std::size_t kCores = 64;  // more share a place: then a thread sleeps where it need not
thread_local Found found_on[kCores];

}  // namespace

bool give_way(Yielded& yielded, const Segment& segment, Spread spread) {
  auto& found = found_on[static_cast<std::size_t>(std::max(sched_getcpu(), 0)) % kCores];
  if (yielded.last < found.resumes || yielded.last - yielded.began >= kAtMost) return false;
  sched_yield();
  auto now = Clock::now();
  auto took = now - yielded.last;
  yielded.last = now;
  // With more ranks than cores it may have been one of those after all.
  if (took < kTimeSlice || (spread == Spread::evenly && !are_others_busy(segment, spread))) {
    if (++found.short_ones >= kShortOnes) found.next_break = kFirstBreak;
    return true;
  }
  found.short_ones = 0;
  found.resumes = now + found.next_break;
  found.next_break = std::min<Clock::duration>(2 * found.next_break, kLongestBreak);
  return true;
}

}  // namespace farandole
