// Copying between buffers that do not overlap.
//
// Not by memcpy where there is much to copy: on several processors the C library then uses `rep movsb`, which is twenty
// times slower when the destination lies a little behind the source within a page (by 16 bytes: any NumPy array, read
// from the beginning of a page of the segment).
#pragma once

#include <cstddef>

namespace farandole {

// Copy to memory that will be read soon.
void copy_bytes(void* to, const void* from, std::size_t bytes);

// Copy to memory that will not be read soon, or by far cores, past the caches where the processor can do that. Others may
// not look at it before `settle`.
void copy_bytes_past_caches(void* to, const void* from, std::size_t bytes);

// Copy to two places while reading once: the one as `copy_bytes_past_caches` does if it `streams`, the second as usual.
void copy_bytes_twice(void* to, bool streams, void* second, const void* from, std::size_t bytes);

// Whether this processor can: otherwise what is written past the caches is written as usual.
bool can_pass_caches();

// What was copied past the caches is seen by whoever sees what is written next.
void settle();

}  // namespace farandole
