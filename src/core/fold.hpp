// Folding: combine several operands element by element, from the left, in one pass over memory.
#pragma once

#include <cstddef>
#include <string_view>

namespace farandole {

// Fold `operands` arrays (two or more) of `length` elements into `output`, `place`, or both (either may be
// null). An operand may be the output itself. 16-bit floats are folded in float32 and rounded once.
using Fold = void (*)(void* output, void* place, const void* const* operands, std::size_t count, std::size_t length);

// The fold for a dtype and an op, by NumPy's and our names ("float32", "sum"); null where there is none.
// Takes the best instruction set that the processor has.
Fold find_fold(std::string_view dtype, std::string_view op);

// Which one that is: "baseline", "avx2" or "avx512".
std::string_view instruction_set();

}  // namespace farandole
