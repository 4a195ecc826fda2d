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

// Copy to memory that will not be read soon, past the caches where the processor can do that.
void copy_bytes_past_caches(void* to, const void* from, std::size_t bytes);

}  // namespace farandole
