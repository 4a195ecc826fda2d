// A plan: one rank's slot program, bound to the lengths of one call. Data only; made in Python, run by Engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fold.hpp"

namespace farandole {

inline constexpr std::int64_t kInput = -1;  // Operand::rank of the user's input; that of rank r is kInput - 1 - r

struct Operand {
  std::int64_t rank;
  std::int64_t offset;      // bytes into the slot; elements into the input, for slice 0
  std::int64_t is_partial;  // 0 or 1: whether its elements are stored as partial values
};

struct Step {
  std::int64_t first_operand, operands;
  std::int64_t length, limit;  // elements: min(length, limit - slice * stride) are there
  std::int64_t output;         // elements into the output, or -1
  std::int64_t place;          // bytes into one's own slot, or -1
  std::int64_t is_partial;     // 0 or 1: whether what is written is a partial value
  std::int64_t finishes;       // 0 or 1: whether this step adds the last contribution
};

struct Stage {
  std::int64_t first_wait, waits;
  std::int64_t first_step, before, after;  // steps before and after the announcement
  std::int64_t announces;                  // 0 or 1
};

struct Plan {
  std::vector<Stage> stages;
  std::vector<Step> steps;
  std::vector<Operand> operands;
  std::vector<std::int64_t> waits;  // ranks
  std::int64_t slices, stride, itemsize;
  std::int64_t partial_itemsize;    // bytes of an element of a partial value
  std::int64_t divisor;             // what a finished value is divided by; 1 for none
  std::int64_t peer_stride;         // bytes from one rank's input to the next one's, as all ranks map them; 0: not shared
  bool streams;                     // whether the output is too long to be found in a cache later
  bool is_small;                    // whether the call is one slice that fits a small set, on every rank
  std::size_t set_bytes;            // how much of a set its slice takes, on the rank where it takes most
  Fold fold;                        // nullptr where nothing is reduced
  std::uint64_t fingerprint;        // equal on ranks that make the same call
  std::string text;                 // the call in words
  std::uint64_t id = 0;             // of this plan, unlike any other of this process; for the flight recorder:
  std::uint64_t bytes = 0;          // of the buffer of the call,
  std::uint64_t sent = 0, received = 0;  // of what this rank writes for others to read, and reads of theirs
  mutable std::uint16_t text_at = 0;     // where its text was put last
};

}  // namespace farandole
