#include "engine.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "copy.hpp"
#include "yielding.hpp"

namespace farandole {
namespace {

constexpr int kFewOperands = 16;
constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;  // odd: no history loses what came first
constexpr auto kLookEvery = std::chrono::milliseconds(10);
constexpr std::size_t kCopyBlock = std::size_t{16} << 10;  // stays in the first cache between two writes

// Copy to the output and to the place, past the caches where that is said; either may be null.
void copy_to_both(std::byte* output, bool output_streams, std::byte* place, bool place_streams, const std::byte* from,
                  std::size_t bytes) {
  if (output == from) output = nullptr;  // an in-place call: it is there already
  // Reads once, except where the place is written past the caches: then that takes a quarter longer.
  if (output != nullptr && place != nullptr && !place_streams) {
    return output_streams ? copy_bytes_twice(output, true, place, from, bytes)
                          : copy_bytes_twice(place, false, output, from, bytes);
  }
  for (std::size_t at = 0; at < bytes; at += kCopyBlock) {
    auto part = std::min(kCopyBlock, bytes - at);
    if (place != nullptr) (place_streams ? copy_bytes_past_caches : copy_bytes)(place + at, from + at, part);
    if (output != nullptr) (output_streams ? copy_bytes_past_caches : copy_bytes)(output + at, from + at, part);
  }
}

}  // namespace

Engine::Engine(std::shared_ptr<Segment> segment, int rank, std::vector<int> process_fds, int batch,
               std::optional<bool> far)
    : segment_(std::move(segment)),
      rank_(rank),
      flight_(segment_->flight(rank)),
      process_fds_(std::move(process_fds)),
      slots_{segment_->slot_bytes() / (2 * static_cast<std::size_t>(batch)) / kCacheLine * kCacheLine,
             static_cast<std::size_t>(batch), 1},
      small_sets_{kSmallSetBytes, 1, kSmallSets / 2},
      distances_(segment_, rank, far),
      aside_(segment_, rank),
      seen_(static_cast<std::size_t>(segment_->ranks()), 0),
      checked_(static_cast<std::size_t>(segment_->ranks()), 0),
      dead_(static_cast<std::size_t>(segment_->ranks()), false) {}

// Whether a rank that has entered this call makes the same. Its line, which has been fetched to see the counter, says so
// unless the rank has gone on since: what then is where this call was is another's, or equal for the same reason.
bool Engine::same_call(int peer) const {
  auto in_line = segment_->line(peer).fingerprint[call_ % kCallsInLine].load(std::memory_order_relaxed);
  return in_line == history_ || segment_->history(peer).fingerprint[call_ % kCalls] == history_;
}

// Show which call this rank is in. Others look at its line all the time, so each write to it that comes by itself takes
// a round trip between caches: a short call does it right before it announces or waits.
void Engine::enter() {
  if (has_entered_) return;
  has_entered_ = true;
  auto& line = segment_->line(rank_);
  aside_.show();
  line.fingerprint[call_ % kCallsInLine].store(history_, std::memory_order_relaxed);
  line.entered.store(call_, std::memory_order_release);
}

// Whom to blame when time is up: not the one waited for, who may itself be waiting, but the one that all wait for. That is
// the end of the chain of who waits for whom. There is none where a rank was stopped while it waited: then it is the one
// that has announced least, as whoever waits for another has mostly announced more.
int Engine::last_to_come(int peer) const {
  int end = peer;
  for (int steps = 0; steps < segment_->ranks() && end != rank_; ++steps) {
    auto next = segment_->flight(end).calls.waits_for.load(std::memory_order_acquire);
    if (next < 0) return end;
    if (next >= segment_->ranks()) break;
    end = next;
  }
  auto done = [&](int rank) {
    auto& line = segment_->line(rank);
    return std::pair(line.counter.load(std::memory_order_acquire), line.entered.load(std::memory_order_acquire));
  };
  int last = peer;
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    if (rank != rank_ && done(rank) < done(last)) last = rank;
  }
  return last;
}

// Everything a rank looks at when the one it waits for does not come. True: go on waiting.
bool Engine::look_around(int peer, Verdict& verdict, const Watch& watch) {
  if (segment_->head().failure.load(std::memory_order_acquire) != 0) {
    verdict = segment_->broken();
    return false;
  }
  // A rank that makes another call may have ended it, and gone on to the next, without ever coming as far as we wait.
  auto entered = segment_->line(peer).entered.load(std::memory_order_acquire);
  if (entered >= call_ && entered < call_ + kCalls && !same_call(peer)) {
    verdict = {Failure::mismatch, peer};
    return false;
  }
  auto now = Clock::now();
  if (!deadline_) {
    auto limit = std::chrono::duration<double>(std::min(watch.timeout_s, 1e9));  // a deadline so far off is none
    deadline_ = now + std::chrono::duration_cast<Clock::duration>(limit);
  }
  if (now < next_look_ && now < *deadline_) return true;
  next_look_ = now + kLookEvery;
  find_dead(process_fds_, dead_);
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    // A rank that is gone matters unless it had done its part of this call. Look at its counter last.
    auto& line = segment_->line(rank);
    auto left = static_cast<Left>(line.left.load(std::memory_order_acquire));
    if (left == Left::no && !dead_[static_cast<std::size_t>(rank)]) continue;
    if (line.counter.load(std::memory_order_acquire) >= end_) continue;
    // Whoever has closed may have done so because of one that died or failed, which is the better news.
    bool lost = left == Left::no || left == Left::failed;
    if (lost || verdict.failure == Failure::none) verdict = {lost ? Failure::lost : Failure::closed, rank};
    if (lost) break;
  }
  if (verdict.failure != Failure::none) return false;
  if ((*watch.interrupted)()) {
    verdict = {closing_.load() ? Failure::closed : Failure::interrupted, rank_};
  } else if (now >= *deadline_) {
    verdict = {Failure::late, last_to_come(peer)};
  }
  return verdict.failure == Failure::none;
}

// Wait until the counter of `peer` is at least `value`; false with a verdict if that will not be. Where there is a `flag`,
// it is raised before the counter, if all calls of the two are the same so far: then it is enough to look at that, and
// what is read next lies beside it. No two histories are taken to be equal by chance.
bool Engine::arrived(int peer, std::uint64_t value, const std::atomic<std::uint64_t>* flag, Until until, Verdict& verdict,
                     const Watch& watch) {
  auto& seen = seen_[static_cast<std::size_t>(peer)];
  if (seen < value) {
    auto& line = segment_->line(peer);
    auto look_at_counter = [&] { return (seen = line.counter.load(std::memory_order_acquire)) >= value; };
    auto look = [&] { return flag == nullptr ? look_at_counter() : flag->load(std::memory_order_acquire) == history_; };
    bool there = look();
    bool waits = !there;
    if (waits) {
      enter();
      flight_.wait_for(peer);
    }
    for (int i = 0; !there && i < watch.patience.spins; ++i) {
      pause();
      there = look();
    }
    if (waits && there) aside_.met();
    if (!there) {
      Yielded yielded;
      auto spread = watch.patience.spread;
      if (aside_.before_yielding(peer, spread, yielded.began)) yielded = {};
      auto yields = until == Until::room ? watch.patience.yields_for_room : watch.patience.yields;
      for (int i = 0; !there && i < yields && give_way(yielded, *segment_, spread); ++i) there = look();
    }
    if (!there && flag != nullptr) there = look_at_counter();  // as it was may be long ago
    while (!there) {
      sleep_on(line, seen, until);
      there = look() || look_at_counter();
      if (!there && !look_around(peer, verdict, watch)) return false;
    }
    if (waits) flight_.waited();
    if (flag != nullptr && seen < value) return true;  // the flag says that the calls are the same
  }
  if (value > base_ && checked_[static_cast<std::size_t>(peer)] != call_) {
    checked_[static_cast<std::size_t>(peer)] = call_;
    enter();
    if (!same_call(peer)) {
      verdict = {Failure::mismatch, peer};
      return false;
    }
  }
  return true;
}

void Engine::run_step(const Plan& plan, const Step& step, std::int64_t slice, std::size_t set, const std::byte* input,
                      std::byte* output) const {
  auto moved = slice * plan.stride;
  auto length = std::min(step.length, step.limit - moved);
  if (length <= 0) return;
  auto itemsize = static_cast<std::size_t>(plan.itemsize);
  auto user = [&](std::int64_t offset) { return static_cast<std::size_t>(offset + moved) * itemsize; };
  auto slot = [&](std::int64_t rank, std::int64_t offset) {
    auto owner = static_cast<int>(rank);
    auto* places = plan.is_small ? segment_->small_set(owner, set).places(plan.set_bytes)
                                 : segment_->slot(owner) + set * slots_.set_bytes;
    return places + static_cast<std::size_t>(offset);
  };
  std::byte* to = step.output >= 0 ? output + user(step.output) : nullptr;
  std::byte* place = step.place >= 0 ? slot(rank_, step.place) : nullptr;
  auto address = [&](const Operand& operand) -> const std::byte* {
    if (operand.rank == kInput) return input + user(operand.offset);
    if (operand.rank < kInput) return input + (kInput - 1 - operand.rank - rank_) * plan.peer_stride + user(operand.offset);
    return slot(operand.rank, operand.offset);
  };
  bool streams = plan.streams && input != output;  // in place, the output has just been read
  bool place_streams = place != nullptr && !plan.is_small && distances_.far();
  const Operand* operands = &plan.operands[static_cast<std::size_t>(step.first_operand)];
  if (step.operands == 1) {
    auto size = operands[0].is_partial != 0 ? static_cast<std::size_t>(plan.partial_itemsize) : itemsize;
    copy_to_both(to, streams, place, place_streams, address(operands[0]), static_cast<std::size_t>(length) * size);
    if (streams || place_streams) settle();
    return;
  }
  FoldOperand few[kFewOperands];
  std::vector<FoldOperand> many;
  FoldOperand* from = few;
  if (step.operands > kFewOperands) {
    many.resize(static_cast<std::size_t>(step.operands));
    from = many.data();
  }
  for (std::int64_t i = 0; i < step.operands; ++i) {
    from[i] = {address(operands[i]), operands[i].is_partial != 0};
    place_streams = place_streams && from[i].data != place;  // what is folded on where it stands nobody else reads yet
  }
  plan.fold({to, streams, place, place_streams, step.is_partial != 0, step.finishes != 0 ? plan.divisor : 1, from,
             static_cast<std::size_t>(step.operands), static_cast<std::size_t>(length)});
  if (streams || place_streams) settle();
}

Verdict Engine::run(const Plan& plan, const std::byte* input, std::byte* output, double timeout_s, Patience patience,
                    const std::function<bool()>& interrupted, Recording* recording) {
  if (recording != nullptr) return carry_out(plan, input, output, timeout_s, patience, interrupted, *recording);
  NoRecording none;
  return carry_out(plan, input, output, timeout_s, patience, interrupted, none);
}

template <class Recorder>
Verdict Engine::carry_out(const Plan& plan, const std::byte* input, std::byte* output, double timeout_s,
                          Patience patience, const std::function<bool()>& interrupted, Recorder& recorder) {
  recorder.start();
  if (auto verdict = segment_->broken(); verdict.failure != Failure::none) return verdict;
  auto& line = segment_->line(rank_);
  base_ = end_;
  end_ = base_ + static_cast<std::uint64_t>(plan.slices) * plan.stages.size();
  ++call_;
  history_ = (history_ + plan.fingerprint) * kMix;
  flight_.begin(plan, call_);
  segment_->history(rank_).fingerprint[call_ % kCalls] = history_;
  has_entered_ = false;
  if (plan.bytes > kShortBytes) enter();  // or else with what is announced, while the line is in this core's cache

  Watch watch{patience, timeout_s, &interrupted};
  deadline_.reset();  // the clock is read only by ranks that have to wait for long
  Verdict verdict;
  auto give_up = [&] {
    enter();
    segment_->break_with(rank_, verdict.peer, verdict.failure);
    auto first = segment_->broken();
    if (first.failure != Failure::none) verdict = first;
    flight_.end(plan, static_cast<std::uint8_t>(verdict.failure), verdict.peer);
    return verdict;
  };

  bool finds_distance = !plan.is_small && distances_.is_due(plan.bytes);
  auto done = base_;
  auto& memory = plan.is_small ? small_sets_ : slots_;
  auto batch = static_cast<std::int64_t>(memory.slices);
  auto room = memory.batches > 1 ? Until::room : Until::next;
  for (std::int64_t first = 0; first < plan.slices; first += batch) {
    for (int peer = 0; peer < segment_->ranks(); ++peer) {
      if (peer == rank_) continue;
      if (!arrived(peer, memory.ends[memory.half()], nullptr, room, verdict, watch)) return give_up();
      recorder.done(Did::waited_for_room, peer, first);
    }
    auto slices = std::min(batch, plan.slices - first);
    for (std::size_t number = 0; number < plan.stages.size(); ++number) {
      const Stage& stage = plan.stages[number];
      // The counter has gone up by one for each slice when all ranks have finished a stage of the batch.
      for (std::int64_t i = 0; i < slices; ++i) {
        auto before = done - static_cast<std::uint64_t>(slices) + static_cast<std::uint64_t>(i) + 1;
        for (std::int64_t w = 0; w < stage.waits; ++w) {
          auto peer = static_cast<int>(plan.waits[static_cast<std::size_t>(stage.first_wait + w)]);
          auto* flag = plan.is_small && number == 1 ? &segment_->small_set(peer, memory.first_set()).flag : nullptr;
          if (!arrived(peer, before, flag, Until::next, verdict, watch)) return give_up();
          recorder.done(Did::waited, stage.first_wait + w, first + i);
        }
        if (finds_distance && number == 1 && first + i == 0 && stage.waits > 0) {
          distances_.follow_one(&plan.waits[static_cast<std::size_t>(stage.first_wait)], static_cast<std::size_t>(stage.waits));
        }
        auto set = memory.first_set() + static_cast<std::size_t>(i);
        auto step = stage.first_step;
        auto run_steps = [&](std::int64_t end) {
          for (; step < end; ++step) {
            run_step(plan, plan.steps[static_cast<std::size_t>(step)], first + i, set, input, output);
            recorder.done(Did::stepped, step, first + i);
          }
        };
        run_steps(step + stage.before);
        if (finds_distance && number == 0 && first + i == 0) distances_.leave_trail();
        if (stage.announces != 0) {
          bool leaves = memory.is_last() && i + 1 == slices && number + 1 == plan.stages.size();
          if (plan.is_small && number == 0) segment_->small_set(rank_, set).flag.store(history_, std::memory_order_release);
          enter();
          announce(line, done + static_cast<std::uint64_t>(i) + 1, leaves);
          recorder.done(Did::announced, static_cast<std::int64_t>(number), first + i);
        }
        run_steps(step + stage.after);
      }
      done += static_cast<std::uint64_t>(slices);
    }
    if (memory.is_last()) memory.ends[memory.half()] = done;
    ++memory.used;
    if (first + slices < plan.slices) flight_.progress(plan, first + slices);
  }
  // The caller may write to the input from now on: nobody must be reading it any more.
  for (int peer = 0; plan.peer_stride != 0 && peer < segment_->ranks(); ++peer) {
    if (peer != rank_ && !arrived(peer, end_, nullptr, Until::next, verdict, watch)) return give_up();
  }
  flight_.end(plan, 0, -1);
  return verdict;
}

void Engine::leave(Left how) {
  if (segment_->line(rank_).left.load() != 0) return;  // whoever leaves twice has left the first time
  segment_->line(rank_).left.store(static_cast<std::uint32_t>(how), std::memory_order_release);
  wake(segment_->line(rank_));
  for (int peer = 0; peer < segment_->ranks(); ++peer) ring(segment_->bell(peer));
}

std::vector<RankState> Engine::states() const {
  bool broken = segment_->broken().failure != Failure::none && segment_->head().filled.load(std::memory_order_acquire) != 0;
  std::vector<RankState> states;
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    auto& line = segment_->line(rank);
    auto& then = segment_->snapshot(rank);
    auto call = broken ? then.call : line.entered.load(std::memory_order_acquire);
    auto& text = broken ? then.text.text : segment_->text(rank, call).text;
    auto left = static_cast<Left>(broken ? then.left : line.left.load(std::memory_order_acquire));
    states.push_back({call, left, call == 0 ? std::string() : std::string(text, strnlen(text, kTextBytes))});
  }
  return states;
}

}  // namespace farandole
