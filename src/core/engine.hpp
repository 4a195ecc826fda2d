// The interpreter: runs plans over the shared segment. It knows stages, steps and slices, no algorithm.
//
// Slices are run in batches. Within a batch every stage is done for all its slices before the next stage, so that while a
// rank waits for one slice, its peers work on another. The memory has two halves, used in turn: by a batch each or, where
// calls are single slices that are short enough, by as many of those as there are small sets. Before a rank writes into a
// half it waits until every rank has finished what was there before. That is the only wait for readers there is; it also
// keeps ranks within so many calls of each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aside.hpp"
#include "distance.hpp"
#include "plan.hpp"
#include "recording.hpp"
#include "segment.hpp"
#include "waiting.hpp"

namespace farandole {

// Memory for data, in two halves, each with room for some batches.
struct Halves {
  std::size_t set_bytes;             // of one slice
  std::size_t slices;                // of a batch
  std::size_t batches;               // in a half
  std::uint64_t used = 0;            // how many batches have been there
  std::uint64_t ends[2] = {0, 0};    // the counters' value when all batches were done that were last in each half

  std::size_t half() const { return used / batches % 2; }
  bool is_last() const { return used % batches == batches - 1; }  // of its half
  std::size_t first_set() const { return used % (2 * batches) * slices; }
};

struct RankState {
  std::uint64_t call;
  Left left;
  std::string text;
};

class Engine {
 public:
  Engine(std::shared_ptr<Segment> segment, int rank, std::vector<int> process_fds, int batch,
         std::optional<bool> far = {});

  // Carry out `plan` on the user's memory. A failure leaves the communicator broken, on all ranks.
  // Where there is a `recording`, it gets what was done when.
  Verdict run(const Plan& plan, const std::byte* input, std::byte* output, double timeout_s, Patience patience,
              const std::function<bool()>& interrupted, Recording* recording = nullptr);

  // Tell the others that this rank will make no more calls, and why not.
  void leave(Left how);
  CallRecorder& flight() { return flight_; }

  // What ends a call by `interrupted` from now on is that this rank is closing the communicator.
  void close() { closing_.store(true); }

  int rank() const { return rank_; }
  std::size_t set_bytes() const { return slots_.set_bytes; }  // in which a slice must fit
  std::uint64_t call() const { return call_; }
  std::vector<std::int64_t> distances_ns() const { return distances_.ns(); }
  bool writes_past_caches() const { return distances_.far(); }
  // What each rank is doing or, if the communicator is broken, was doing when it broke.
  std::vector<RankState> states() const;

 private:
  template <class Recorder>
  Verdict carry_out(const Plan& plan, const std::byte* input, std::byte* output, double timeout_s, Patience patience,
                    const std::function<bool()>& interrupted, Recorder& recorder);
  void enter();
  bool arrived(int peer, std::uint64_t value, const std::atomic<std::uint64_t>* flag, Until until, Verdict& verdict,
               const Watch& watch);
  bool look_around(int peer, Verdict& verdict, const Watch& watch);
  bool same_call(int peer) const;
  int last_to_come(int peer) const;
  void run_step(const Plan& plan, const Step& step, std::int64_t slice, std::size_t set, const std::byte* input,
                std::byte* output) const;

  std::shared_ptr<Segment> segment_;
  int rank_;
  CallRecorder flight_;
  std::vector<int> process_fds_;
  Halves slots_, small_sets_;
  Distances distances_;
  Aside aside_;
  std::uint64_t call_ = 0;              // this call
  bool has_entered_ = false;            // whether the line shows this call
  std::uint64_t history_ = 0;           // the fingerprint of all calls so far
  std::uint64_t base_ = 0, end_ = 0;    // the counters' common value at its beginning and its end
  std::vector<std::uint64_t> seen_;     // the last value seen of each rank's counter
  std::vector<std::uint64_t> checked_;  // the last call in which it was found that each rank makes the same
  std::vector<bool> dead_;
  std::atomic<bool> closing_{false};
  Clock::time_point next_look_{};
  std::optional<Clock::time_point> deadline_;  // of this call
};

}  // namespace farandole
