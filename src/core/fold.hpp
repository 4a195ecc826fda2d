// Folding: combine several operands element by element, from the left, in one pass over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace farandole {

struct FoldOperand {
  const void* data;
  bool is_partial;
};

// Fold `count` operands (two or more) of `length` elements into `output`, `place`, or both (either may be
// null). An operand may be the output or the place itself. 16-bit floats are folded in float32: partial
// operands, and the place where `is_partial` says so, hold float32. The result is divided by `divisor`.
//
// What is written past the caches, if `output_streams` or `place_streams` say so, others may not look at before `settle`.
struct FoldJob {
  void* output;
  bool output_streams;  // it is too long to be found in a cache later
  void* place;
  bool place_streams;   // its readers are far away
  bool is_partial;
  std::int64_t divisor;
  const FoldOperand* operands;
  std::size_t count, length;
};
using Fold = void (*)(const FoldJob& job);

// The fold for a dtype and an op, by NumPy's and our names ("float32", "sum"); null where there is none.
// Takes the best instruction set that the processor has.
Fold find_fold(std::string_view dtype, std::string_view op);

// Which one that is: "baseline", "avx2" or "avx512".
std::string_view instruction_set();

// Bytes of an element of a partial value of that dtype, which has `itemsize` bytes itself.
std::size_t partial_itemsize(std::string_view dtype, std::size_t itemsize);

}  // namespace farandole
