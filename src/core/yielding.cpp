#include "yielding.hpp"

#include <algorithm>

#include <sched.h>

namespace farandole {
namespace {

using namespace std::chrono_literals;

constexpr auto kAtMost = 5ms;     // of one wait
constexpr auto kTimeSlice = 1ms;  // no rank takes that long often
constexpr auto kOften = 20ms;     // two of them within that
constexpr Clock::duration kFirstBreak = 20ms, kLongestBreak = 1000ms;
constexpr int kShortOnes = 64;    // in a row: then nobody computes here
constexpr std::size_t kCores = 64;

// What this thread has found on one core.
struct Found {
  Clock::time_point resumes{};  // when it yields again
  Clock::time_point last_long{};
  Clock::duration next_break = kFirstBreak;
  int short_ones = 0;  // in a row, up to kShortOnes
};
constinit thread_local Found found_on[kCores];  // where there are more, some share a place

}  // namespace

bool give_way(Yielded& yielded, const Segment& segment, Spread spread) {
  auto& found = found_on[static_cast<std::size_t>(std::max(sched_getcpu(), 0)) % kCores];
  if (yielded.last < found.resumes || yielded.last - yielded.began >= kAtMost) return false;
  sched_yield();
  auto now = Clock::now();
  auto took = now - yielded.last;
  yielded.last = now;
  if (took < kTimeSlice) {
    if (found.short_ones < kShortOnes && ++found.short_ones == kShortOnes) found.next_break = kFirstBreak;
    return true;
  }
  found.short_ones = 0;
  bool often = found.next_break > kFirstBreak || now - found.last_long < kOften;
  found.last_long = now;
  // With more ranks than cores it may have been one of those after all.
  if (!often || (spread == Spread::evenly && !are_others_busy(segment, spread))) return true;
  found.resumes = now + found.next_break;
  found.next_break = std::min(2 * found.next_break, kLongestBreak);
  return true;
}

}  // namespace farandole
