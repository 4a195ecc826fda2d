// What the mismatch check and the flight recorder add to a call, with another rank at the other end of the memory.
//
//   c++ -std=c++20 -O3 -pthread -I src/core benchmarks/safety.cpp src/core/flight.cpp src/core/segment.cpp
//       src/core/waiting.cpp -o safety && ./safety      (one line)
//
// Two ranks, as threads on two cores, meet in every call as in a barrier: each raises its flag, announces its counter, and
// waits for the other's flag. That is the least that any short call between ranks can do. With the check, each also mixes
// the call into its history, publishes it beside its counter, and takes it for the flag; with the recorder, it writes its
// record.
// The ways are taken in turn, many times; printed are medians, and that of what each adds to the bare call of its turn.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "flight.hpp"
#include "plan.hpp"
#include "segment.hpp"
#include "waiting.hpp"

using namespace farandole;

namespace {

constexpr int kTries = 200;
constexpr std::uint64_t kEachTime = 5000;
constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;  // as in engine.cpp

struct Way {
  const char* name;
  bool checks, records;
};
constexpr Way kWays[] = {{"bare", false, false}, {"with the check", true, false}, {"with the recorder", false, true}, {"with both", true, true}};

// One rank's calls: `done` is the counter before them, `made` the calls before them.
void calls(Segment& segment, int rank, Way way, std::uint64_t made, std::uint64_t& kept) {
  auto history = kept;  // not where the other thread's is: they would share a cache line
  auto& mine = segment.line(rank);
  CallRecorder recorder(segment.flight(rank));
  Plan plan{};
  plan.id = 1;
  plan.text = "all_reduce(float64[1], sum, naive)";
  plan.bytes = plan.sent = plan.received = 8;
  plan.fingerprint = 0x1234567;
  for (std::uint64_t call = made + 1; call <= made + kEachTime; ++call) {
    if (way.checks) {
      history = (history + plan.fingerprint) * kMix;
      segment.history(rank).fingerprint[call % kCalls] = history;
    }
    if (way.records) recorder.begin(plan, call);
    auto flag = way.checks ? history : call;
    segment.small_set(rank, call % kSmallSets).flag.store(flag, std::memory_order_release);
    if (way.checks) {
      mine.fingerprint[call % kCallsInLine] = history;
      mine.entered.store(call, std::memory_order_release);
    }
    announce(mine, call, false);
    auto& theirs = segment.small_set(1 - rank, call % kSmallSets).flag;
    auto there = [&] { return theirs.load(std::memory_order_acquire) == flag; };
    bool waits = !there();
    if (waits && way.records) recorder.wait_for(1 - rank);
    while (!there()) farandole::pause();
    if (waits && way.records) recorder.waited();
    if (way.records) recorder.end(plan, 0, -1);
  }
  kept = history;
}

}  // namespace

int main() {
  int fd = memfd_create("safety", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(Segment::bytes_needed(2, 4096))) != 0) return 1;
  Segment segment(fd, 2, 4096);
  introduce(segment.flight(0));
  introduce(segment.flight(1));
  std::vector<double> took[std::size(kWays)];
  std::uint64_t made = 0, histories[2] = {0, 0};
  for (int attempt = 0; attempt < kTries; ++attempt) {
    for (std::size_t way = 0; way < std::size(kWays); ++way, made += kEachTime) {
      std::thread second([&] { calls(segment, 1, kWays[way], made, histories[1]); });
      while (segment.line(1).counter.load() == made) farandole::pause();  // until it is there
      auto begin = std::chrono::steady_clock::now();
      calls(segment, 0, kWays[way], made, histories[0]);
      std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
      second.join();
      took[way].push_back(time.count() / static_cast<double>(kEachTime));
    }
  }
  auto median = [](std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  for (std::size_t way = 0; way < std::size(kWays); ++way) {
    std::vector<double> added;
    for (std::size_t i = 0; i < took[way].size(); ++i) added.push_back(took[way][i] - took[0][i]);
    std::printf("a call %s: %.0f ns; adds %.0f ns\n", kWays[way].name, median(took[way]), median(added));
  }
  return 0;
}
