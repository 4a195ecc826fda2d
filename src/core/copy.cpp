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

template <bool streams>
__attribute__((target("avx2"))) void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t vector = sizeof(__m256i), step = 4 * vector;
  std::size_t at = (vector - reinterpret_cast<std::uintptr_t>(to) % vector) % vector;
  std::memcpy(to, from, at);  // then the destination is aligned
  for (; at + step <= bytes; at += step) {
    __m256i piece[4];
    for (std::size_t i = 0; i < 4; ++i) piece[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at) + i);
    for (std::size_t i = 0; i < 4; ++i) {
      auto* place = reinterpret_cast<__m256i*>(to + at) + i;
      streams ? _mm256_stream_si256(place, piece[i]) : _mm256_store_si256(place, piece[i]);
    }
  }
  std::memcpy(to + at, from + at, bytes - at);
  if (streams) _mm_sfence();
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes < kFew || !kHasAvx2) {
    std::memcpy(to, from, bytes);
  } else {
    copy_by_vectors<false>(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  }
}

void copy_bytes_past_caches(void* to, const void* from, std::size_t bytes) {
  if (bytes < kFew || !kHasAvx2) {
    std::memcpy(to, from, bytes);
  } else {
    copy_by_vectors<true>(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  }
}

#else

void copy_bytes(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void copy_bytes_past_caches(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace farandole
