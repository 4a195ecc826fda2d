#include "flight.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "plan.hpp"
#include "post.hpp"

namespace farandole {
namespace {

#if defined(__x86_64__)
bool has_even_counter() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;  // "invariant TSC"
}
#else
bool has_even_counter() {
#if defined(__aarch64__)
  return true;
#else
  return false;
#endif
}
#endif

// The 22nd field of /proc/self/stat; 0 where there is none. The second one may hold spaces and brackets.
std::uint64_t start_of_this_process() {
  char text[1024];
  std::FILE* file = std::fopen("/proc/self/stat", "re");
  if (file == nullptr) return 0;
  auto length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
  }
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

}  // namespace

const bool kCounterIsEven = has_even_counter();

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void introduce(Flight& flight) {
  auto& identity = flight.identity;
  identity.pid = static_cast<std::uint32_t>(getpid());
  identity.counts = kCounterIsEven ? 1 : 0;
  identity.started = start_of_this_process();
  identity.ticks = ticks();
  identity.ns = monotonic_ns();
}

CallRecorder::CallRecorder(Flight& flight) : flight_(flight) { flight_.calls.waits_for.store(-1); }

// Where the plan's text lies. It is written there unless it is there still; a text that one of the last kRecords
// calls used is never overwritten, so every record that can be read has its text.
std::uint16_t CallRecorder::place_of(const Plan& plan, std::uint64_t call) {
  if (owner_[plan.text_at] != plan.id) {
    while (used_[next_] != 0 && used_[next_] + kRecords >= call) next_ = (next_ + 1) % kTexts;
    owner_[next_] = plan.id;
    plan.text_at = static_cast<std::uint16_t>(next_);
    auto& text = flight_.texts[next_].text;
    std::memset(text, 0, kTextBytes);
    std::memcpy(text, plan.text.data(), std::min(plan.text.size(), kTextBytes - 1));
  }
  used_[plan.text_at] = call;
  return plan.text_at;
}

std::uint64_t CallRecorder::bytes_of(const Plan& plan) { return plan.bytes; }

void CallRecorder::progress(const Plan& plan, std::int64_t slices) {
  auto part = static_cast<double>(slices) / static_cast<double>(plan.slices);
  auto count_up_to = [&](Counter& counter, std::uint64_t& counted, std::uint64_t whole) {
    auto now = std::min(whole, static_cast<std::uint64_t>(static_cast<double>(whole) * part));
    counter.add(now - counted);
    counted = now;
  };
  count_up_to(flight_.calls.sent, sent_, plan.sent);
  count_up_to(flight_.calls.received, received_, plan.received);
}

void CallRecorder::count(const Plan& plan, std::uint64_t took, bool whole) {
  auto& calls = flight_.calls;
  calls.busy.add(took);
  if (whole) {
    calls.bytes.add(plan.bytes);
    calls.sent.add(plan.sent - sent_);
    calls.received.add(plan.received - received_);
  }
  calls.done.add(1);
}

void MessageRecorder::begin(Message& message, bool receives) {
  message.receives = receives;
  auto number = message.number = flight_.messages.begun.value.load(std::memory_order_relaxed) + 1;
  auto kind = receives ? CallKind::receive : CallKind::send;
  auto& record = flight_.last_messages[number % kRecords];
  auto waits = static_cast<std::uint16_t>(message.waits ? 1 : 0);
  record = {number, ticks(), 0, message.header.bytes, message.header.tag, message.peer, waits,
            static_cast<std::uint8_t>(kind), kGoesOn, {}};
  std::memcpy(record.dtype, message.header.dtype, sizeof record.dtype);
  flight_.messages.begun.value.store(number, std::memory_order_release);
}

void MessageRecorder::end(Message& message, std::uint8_t outcome) {
  auto number = std::exchange(message.number, 0);
  if (number == 0) return;
  auto& record = flight_.last_messages[number % kRecords];
  flight_.messages.done.add(1);
  if (outcome == 0) (message.receives ? flight_.messages.received : flight_.messages.sent).add(message.header.bytes);
  if (record.number != number) return;  // so many have begun since
  record.end = ticks();
  record.peer = message.peer;
  std::atomic_signal_fence(std::memory_order_release);
  record.outcome = outcome;
}

}  // namespace farandole
