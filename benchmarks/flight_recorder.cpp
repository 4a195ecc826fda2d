// What the flight recorder adds to a call: nanoseconds of its begin, its end and one wait, the least of many tries.
//
//   c++ -std=c++20 -O3 -I src/core benchmarks/flight_recorder.cpp src/core/flight.cpp -o flight_recorder && ./flight_recorder
//
// The wait's beginning costs nothing in a call, since nothing else can be done then: subtract one read of the counter.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "flight.hpp"
#include "plan.hpp"

using namespace farandole;

namespace {

constexpr int kTries = 2000;
constexpr std::uint64_t kCalls = 1000;

template <class Body>
double least_ns(Body body) {
  double least = 1e9;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t call = 1; call <= kCalls; ++call) body(call);
    std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count() / static_cast<double>(kCalls));
  }
  return least;
}

}  // namespace

int main() {
  auto flight = std::make_unique<Flight>();
  introduce(*flight);
  CallRecorder recorder(*flight);
  Plan plan{};
  plan.id = 1;
  plan.text = "all_reduce(float64[1], sum, naive)";
  plan.bytes = plan.sent = plan.received = 8;
  volatile std::uint64_t sink = 0;
  std::printf("one read of the counter: %.1f ns\n", least_ns([&](std::uint64_t) { sink = ticks(); }));
  std::printf("a call without a wait: %.1f ns\n", least_ns([&](std::uint64_t call) {
                recorder.begin(plan, call);
                recorder.end(plan, 0, -1);
              }));
  std::printf("a call with one wait: %.1f ns\n", least_ns([&](std::uint64_t call) {
                recorder.begin(plan, call);
                recorder.wait_for(1);
                recorder.waited();
                recorder.end(plan, 0, -1);
              }));
  return 0;
}
