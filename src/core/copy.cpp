#include "copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace farandole {

#if defined(__x86_64__)

namespace {

constexpr std::size_t kFew = 1024;  // memcpy is as good below

const bool kHasAvx2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}();

constexpr std::size_t kVector = sizeof(__m256i);
constexpr std::size_t kReadAhead = 512;

template <bool streams>
__attribute__((target("avx2"), always_inline)) inline void store(std::byte* to, const __m256i (&piece)[4]) {
  for (std::size_t i = 0; i < 4; ++i) {
    auto* place = reinterpret_cast<__m256i*>(to) + i;
    streams ? _mm256_stream_si256(place, piece[i]) : _mm256_storeu_si256(place, piece[i]);
  }
}

// Copy to one destination, past the caches or not, or to two, of which the second is written as usual.
template <bool streams, bool twice>
__attribute__((target("avx2"))) void copy_by_vectors(std::byte* to, std::byte* second, const std::byte* from,
                                                     std::size_t bytes) {
  auto few = [&](std::size_t at, std::size_t count) {
    std::memcpy(to + at, from + at, count);
    if constexpr (twice) std::memcpy(second + at, from + at, count);
  };
  constexpr std::size_t step = 4 * kVector;
  std::size_t at = (kVector - reinterpret_cast<std::uintptr_t>(to) % kVector) % kVector;
  few(0, at);  // then the destination is aligned
  for (; at + step <= bytes; at += step) {
    if constexpr (streams) {  // beside such writes the processor does not read far enough ahead by itself
      auto* ahead = reinterpret_cast<const char*>(from + at + kReadAhead);
      _mm_prefetch(ahead, _MM_HINT_T0);
      _mm_prefetch(ahead + 64, _MM_HINT_T0);
    }
    __m256i piece[4];
    for (std::size_t i = 0; i < 4; ++i) piece[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at) + i);
    store<streams>(to + at, piece);
    if constexpr (twice) store<false>(second + at, piece);
  }
  few(at, bytes - at);
}

template <bool streams, bool twice>
void copy(void* to, void* second, const void* from, std::size_t bytes) {
  if (bytes < kFew || !kHasAvx2) {
    std::memcpy(to, from, bytes);
    if constexpr (twice) std::memcpy(second, from, bytes);
  } else {
    auto* source = static_cast<const std::byte*>(from);
    copy_by_vectors<streams, twice>(static_cast<std::byte*>(to), static_cast<std::byte*>(second), source, bytes);
  }
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) { copy<false, false>(to, nullptr, from, bytes); }
void copy_bytes_past_caches(void* to, const void* from, std::size_t bytes) {
  copy<true, false>(to, nullptr, from, bytes);
}
void copy_bytes_twice(void* to, bool streams, void* second, const void* from, std::size_t bytes) {
  (streams ? copy<true, true> : copy<false, true>)(to, second, from, bytes);
}
bool can_pass_caches() { return kHasAvx2; }
void settle() { _mm_sfence(); }

#else

void copy_bytes(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void copy_bytes_past_caches(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void copy_bytes_twice(void* to, bool, void* second, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  std::memcpy(second, from, bytes);
}
bool can_pass_caches() { return false; }
void settle() {}

#endif

}  // namespace farandole
