// A pipe: bytes from one rank to another, through a ring in shared memory. One writer, one reader.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "copy.hpp"

namespace farandole {

inline constexpr std::size_t kPipeBytes = std::size_t{32} << 10;

struct Pipe {
  alignas(64) std::atomic<std::uint64_t> written;  // bytes so far; only the writer changes it
  alignas(64) std::atomic<std::uint64_t> read;     // bytes so far; only the reader changes it
  alignas(64) std::byte ring[kPipeBytes];

  std::size_t readable() const {
    // The other side could be broken, or bad: never believe that there is more than fits.
    auto bytes = written.load(std::memory_order_acquire) - read.load(std::memory_order_relaxed);
    return static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPipeBytes));
  }
  std::size_t writable() const {
    auto bytes = written.load(std::memory_order_relaxed) - read.load(std::memory_order_acquire);
    return kPipeBytes - static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPipeBytes));
  }
  // Move as much as there is room for; how much that was.
  std::size_t write(const std::byte* from, std::size_t bytes) {
    bytes = std::min(bytes, writable());
    auto at = written.load(std::memory_order_relaxed);
    auto begin = static_cast<std::size_t>(at % kPipeBytes), first = std::min(bytes, kPipeBytes - begin);
    if (bytes != 0) copy_bytes(ring + begin, from, first);
    if (bytes > first) copy_bytes(ring, from + first, bytes - first);
    written.store(at + bytes, std::memory_order_release);
    return bytes;
  }
  // Take as much as there is; how much that was. `to` may be null: the bytes are thrown away.
  std::size_t take(std::byte* to, std::size_t bytes) {
    bytes = std::min(bytes, readable());
    auto at = read.load(std::memory_order_relaxed);
    auto begin = static_cast<std::size_t>(at % kPipeBytes), first = std::min(bytes, kPipeBytes - begin);
    if (to != nullptr && bytes != 0) copy_bytes(to, ring + begin, first);
    if (to != nullptr && bytes > first) copy_bytes(to + first, ring, bytes - first);
    read.store(at + bytes, std::memory_order_release);
    return bytes;
  }
};

}  // namespace farandole
