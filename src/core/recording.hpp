// What a traced call records: when each thing that its plan says was done. A plain call records nothing, at no cost.
//
// A rank does one thing after the other, so what ends is what has gone on since the last thing ended: one look at the
// clock for each. The clock is CLOCK_MONOTONIC, which the processes of a host have in common.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "plan.hpp"

namespace farandole {

enum class Did : std::int64_t {
  waited_for_room,  // for a rank to have finished the batch that used this half of the slots; index: the rank
  waited,           // for a rank to have finished the stage before; index: into the plan's waits
  stepped,          // index: into the plan's steps
  announced,        // index: the stage
};

struct Record {
  std::int64_t did, index, slice, begin_ns, end_ns;
};

inline std::int64_t clock_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How many records a call of `plan` makes, with `batch` slices in a batch.
inline std::int64_t records_of(const Plan& plan, std::int64_t ranks, std::int64_t batch) {
  std::int64_t each = 0;
  for (const Stage& stage : plan.stages) each += stage.waits + stage.before + stage.after + stage.announces;
  return plan.slices * each + (plan.slices + batch - 1) / batch * (ranks - 1);
}

// Has room for all records of a call from the start, so that recording allocates nothing.
class Recording {
 public:
  explicit Recording(std::int64_t capacity) { records_.reserve(static_cast<std::size_t>(capacity)); }

  void start() { last_ns_ = clock_ns(); }
  void done(Did did, std::int64_t index, std::int64_t slice) {
    auto now = clock_ns();
    records_.push_back({static_cast<std::int64_t>(did), index, slice, last_ns_, now});
    last_ns_ = now;
  }
  const std::vector<Record>& records() const { return records_; }

 private:
  std::vector<Record> records_;
  std::int64_t last_ns_ = 0;
};

struct NoRecording {
  void start() {}
  void done(Did, std::int64_t, std::int64_t) {}
};

}  // namespace farandole
