// The flight recorder: each rank's last calls and messages, and what it has moved, kept where others can read them.
//
// It is part of the segment, so it outlives the rank, and another process can read it while the rank runs or hangs.
// Each part is written by one rank only, and there by one thread at a time, with plain stores into cache lines that
// no other rank needs. Readers copy it and never wait for anyone: a record is whole if it is one of the last
// kRecords - 1 both before and after it was copied (see src/farandole/run/flight.py, which knows these structs).
//
// Times are ticks of the processor's counter where it runs evenly, for a tenth of the price of a clock; `Identity`
// says which, and holds a pair of ticks and nanoseconds of CLOCK_MONOTONIC to convert them with.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace farandole {

struct Plan;
struct Message;

inline constexpr std::size_t kTextBytes = 192;         // of a call's description, zero included
inline constexpr std::size_t kRecords = 64;            // calls, and as many messages
inline constexpr std::size_t kTexts = kRecords + 4;    // more than calls, so that one is always free for the next
inline constexpr std::uint8_t kGoesOn = 0xff;          // CallRecord::outcome before the end
inline constexpr std::uint64_t kShortBytes = 4096;     // of a call
inline constexpr std::size_t kNameBytes = 64;          // of an exception, zero included

enum class CallKind : std::uint8_t { foreground = 0, background = 1, send = 2, receive = 3 };

struct CallRecord {
  std::uint64_t number;      // counts from 1, collectives and messages apart; 0 where there is none yet
  std::uint64_t begin, end;  // ticks
  std::uint64_t bytes;       // of a collective: its buffer; of a message: its data
  std::int64_t tag;          // of a message
  std::int32_t peer;         // of a message, or whom a failure is about; -1 for none
  std::uint16_t text;        // of a collective: which of the texts; of a message: 1 if a thread waits for it
  std::uint8_t kind;         // CallKind
  std::uint8_t outcome;      // Failure, or kGoesOn
  char dtype[16];            // of a message
};
static_assert(sizeof(CallRecord) == 64);

struct CallText {
  char text[kTextBytes];
};

// Who the rank is; written before its first call, except for `ending`.
struct Identity {
  std::uint32_t pid;
  std::uint32_t counts;      // 1 if ticks are of the processor's counter, 0 if they are nanoseconds
  std::uint64_t started;     // when the process began, as in /proc/PID/stat
  std::uint64_t ticks, ns;   // the same moment by both clocks
  std::uint64_t reserved[4];
  char ending[kNameBytes];   // the exception that ended the rank, if one did
};
static_assert(sizeof(Identity) == 128);

// Sums over all calls so far. Only their owner changes them, so a sum is a load and a store, no locked addition.
struct Counter {
  std::atomic<std::uint64_t> value;
  void add(std::uint64_t more) { value.store(value.load(std::memory_order_relaxed) + more, std::memory_order_relaxed); }
};

// By the thread that carries out a collective.
struct alignas(64) CallCounters {
  Counter done;                         // calls that have ended, well or not
  Counter bytes, sent, received;        // of buffers; written for others to read; read from what others have written
  Counter busy, waiting;                // ticks in calls, and of those the ticks of waiting for another rank
  std::atomic<std::uint64_t> since;     // ticks when the wait began that is going on
  std::atomic<std::int32_t> waits_for;  // a rank, or -1
  std::atomic<std::uint32_t> queued;    // calls in the background that have not ended
};
static_assert(sizeof(CallCounters) == 64);

// By whoever holds the lock of the rank's messages.
struct alignas(64) MessageCounters {
  Counter begun, done;
  Counter sent, received;               // bytes
  Counter waiting;                      // ticks of waiting in calls of the foreground
  std::uint64_t reserved[3];
};
static_assert(sizeof(MessageCounters) == 64);

struct alignas(64) Flight {
  Identity identity;
  CallCounters calls;
  MessageCounters messages;
  CallRecord last_calls[kRecords];      // call c at c % kRecords
  CallRecord last_messages[kRecords];   // and message m
  CallText texts[kTexts];
};

extern const bool kCounterIsEven;       // whether the processor has a counter that runs evenly, on all cores alike
std::uint64_t monotonic_ns();

inline std::uint64_t ticks() {
#if defined(__x86_64__)
  if (kCounterIsEven) return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
  return monotonic_ns();
}

// Writes the collectives of one rank. One thread at a time.
class CallRecorder {
 public:
  explicit CallRecorder(Flight& flight);

  void begin(const Plan& plan, std::uint64_t call) {
    auto text = place_of(plan, call);
    now_ = &flight_.last_calls[call % kRecords];
    auto start = ticks();
    waited_ = sent_ = received_ = 0;
    *now_ = {call, start, 0, bytes_of(plan), 0, -1, text, static_cast<std::uint8_t>(kind_), kGoesOn, {}};
  }
  void end(const Plan& plan, std::uint8_t outcome, int peer) {
    if (outcome != 0 && flight_.calls.waits_for.load(std::memory_order_relaxed) >= 0) waited();
    // A short call ends as its last wait does; to read the counter once more would cost more than it tells.
    auto stop = waited_ != 0 && now_->bytes <= kShortBytes ? waited_ : ticks();
    now_->end = stop;
    now_->peer = peer;
    std::atomic_signal_fence(std::memory_order_release);
    now_->outcome = outcome;
    count(plan, stop - now_->begin, outcome == 0);
  }
  // So many slices of a long call are done: what they moved counts now, not only when the call ends.
  void progress(const Plan& plan, std::int64_t slices);
  // A wait for another rank begins, and ends.
  void wait_for(int peer) {
    flight_.calls.since.store(ticks(), std::memory_order_relaxed);
    flight_.calls.waits_for.store(peer, std::memory_order_relaxed);
  }
  void waited() {
    waited_ = ticks();
    flight_.calls.waits_for.store(-1, std::memory_order_relaxed);
    flight_.calls.waiting.add(waited_ - flight_.calls.since.load(std::memory_order_relaxed));
  }
  void in_background(bool is) { kind_ = is ? CallKind::background : CallKind::foreground; }
  void queued(std::size_t calls) { flight_.calls.queued.store(static_cast<std::uint32_t>(calls), std::memory_order_relaxed); }

 private:
  std::uint16_t place_of(const Plan& plan, std::uint64_t call);
  static std::uint64_t bytes_of(const Plan& plan);
  void count(const Plan& plan, std::uint64_t took, bool whole);

  Flight& flight_;
  CallRecord* now_ = nullptr;
  CallKind kind_ = CallKind::foreground;
  std::uint64_t waited_ = 0;            // when this call's last wait ended
  std::uint64_t sent_ = 0, received_ = 0;  // bytes of this call that have been counted
  std::uint64_t owner_[kTexts] = {};    // the plan whose text it is
  std::uint64_t used_[kTexts] = {};     // the last call that used it
  std::size_t next_ = 0;
};

// Writes the messages of one rank, under the lock of its messages.
class MessageRecorder {
 public:
  explicit MessageRecorder(Flight& flight) : flight_(flight) {}
  void begin(Message& message, bool receives);
  void end(Message& message, std::uint8_t outcome);
  void waited(std::uint64_t since) { flight_.messages.waiting.add(ticks() - since); }

 private:
  Flight& flight_;
};

// Say who this process is.
void introduce(Flight& flight);

}  // namespace farandole
