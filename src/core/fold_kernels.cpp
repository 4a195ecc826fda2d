// The folds themselves. This file is compiled once per instruction set, FARANDOLE_ISA, and must not share
// any function with other files: the linker would keep one copy, perhaps one this processor cannot run.
// So everything but the entry point is in an unnamed namespace, and no library template is used on data.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "copy.hpp"
#include "fold.hpp"

namespace farandole {
namespace {

constexpr std::size_t kBlockBytes = 4096;                    // accumulators of a block stay in the first cache
constexpr std::size_t kStreamBytes = std::size_t{16} << 10;  // past the caches at a time; 4 KiB take a third longer

std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

// How an element is stored and in which type it is folded. Plain types are both.
template <class T>
struct Plain {
  using Stored = T;
  using Folded = T;
  static constexpr bool converts = false;
};

struct Bool {
  using Stored = std::uint8_t;
  using Folded = std::uint8_t;
  static constexpr bool converts = false;
};

float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint32_t to_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

struct BFloat16 {
  using Stored = std::uint16_t;
  using Folded = float;
  static constexpr bool converts = true;

  static void widen(const Stored* from, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = from_bits(static_cast<std::uint32_t>(from[i]) << 16);
  }
  static void narrow(const float* from, Stored* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      auto bits = to_bits(from[i]);
      auto rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // to nearest, ties to even
      bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
      to[i] = static_cast<Stored>(is_nan ? (bits >> 16 | 0x40) : rounded);
    }
  }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Folded = float;
  static constexpr bool converts = true;

  static float widen_one(Stored half) {
    std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    std::uint32_t rest = half & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest < 0x400) {  // zero or subnormal: a multiple of 2^-24
      float value = static_cast<float>(rest) * 0x1p-24F;
      return from_bits(sign | to_bits(value));
    }
    return from_bits(sign | ((rest << 13) + (112U << 23)));
  }
  static Stored narrow_one(float value) {
    std::uint32_t bits = to_bits(value);
    auto sign = static_cast<Stored>(bits >> 16 & 0x8000);
    std::uint32_t rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return static_cast<Stored>(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return static_cast<Stored>(sign | 0x7c00);  // rounds to infinity
    if (rest < 0x38800000) {  // subnormal: let the addition round to a multiple of 2^-24
      return static_cast<Stored>(sign | (to_bits(from_bits(rest) + 0.5F) - to_bits(0.5F)));
    }
    return static_cast<Stored>(sign | (rest - (112U << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
  }
  static void widen(const Stored* from, float* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#endif
    for (; i < n; ++i) to[i] = widen_one(from[i]);
  }
  static void narrow(const float* from, Stored* to, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      auto half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
    }
#endif
    for (; i < n; ++i) to[i] = narrow_one(from[i]);
  }
};

template <class T>
struct Complex {
  T re, im;
};

// The ops. Integers wrap; a NaN in min or max wins wherever it stands.
template <class T>
struct WrapType {
  using type = std::uint32_t;
};
template <>
struct WrapType<std::int64_t> {
  using type = std::uint64_t;
};
template <>
struct WrapType<std::uint64_t> {
  using type = std::uint64_t;
};
template <>
struct WrapType<float> {
  using type = float;
};
template <>
struct WrapType<double> {
  using type = double;
};
template <class T>
using Wrap = typename WrapType<T>::type;

struct Sum {
  template <class T>
  static T apply(T x, T y) {
    return static_cast<T>(static_cast<Wrap<T>>(x) + static_cast<Wrap<T>>(y));
  }
  template <class T>
  static Complex<T> apply(Complex<T> x, Complex<T> y) {
    return {x.re + y.re, x.im + y.im};
  }
};
struct Prod {
  template <class T>
  static T apply(T x, T y) {
    return static_cast<T>(static_cast<Wrap<T>>(x) * static_cast<Wrap<T>>(y));
  }
  template <class T>
  static Complex<T> apply(Complex<T> x, Complex<T> y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
  }
};
struct Min {
  template <class T>
  static T apply(T x, T y) {
    return x < y || x != x ? x : y;
  }
};
struct Max {
  template <class T>
  static T apply(T x, T y) {
    return x > y || x != x ? x : y;
  }
};
struct And {
  template <class T>
  static T apply(T x, T y) {
    return static_cast<T>(x & y);
  }
};
struct Or {
  template <class T>
  static T apply(T x, T y) {
    return static_cast<T>(x | y);
  }
};
struct Xor {
  template <class T>
  static T apply(T x, T y) {
    return static_cast<T>(x ^ y);
  }
};

// One pass over n elements of two to four operands. The output may be one of them.
template <class Op, class T>
void pass(T* output, const T* const* x, std::size_t count, std::size_t n) {
  const T *a = x[0], *b = x[1];
  if (count == 2) {
    for (std::size_t i = 0; i < n; ++i) output[i] = Op::apply(a[i], b[i]);
  } else if (count == 3) {
    const T* c = x[2];
    for (std::size_t i = 0; i < n; ++i) output[i] = Op::apply(Op::apply(a[i], b[i]), c[i]);
  } else {
    const T *c = x[2], *d = x[3];
    for (std::size_t i = 0; i < n; ++i) output[i] = Op::apply(Op::apply(Op::apply(a[i], b[i]), c[i]), d[i]);
  }
}

// Fold n elements, at most a block. `load(j)` gives operand j as an array of T.
template <class Op, class T, class Load>
void fold_block(T* output, Load load, std::size_t count, std::size_t n) {
  alignas(64) T sum[kBlockBytes / sizeof(T)];
  const T* x[4] = {};
  std::size_t taken = count < 4 ? count : 4;
  for (std::size_t j = 0; j < taken; ++j) x[j] = load(j);
  pass<Op, T>(taken == count ? output : sum, x, taken, n);
  while (taken < count) {
    std::size_t more = count - taken < 3 ? count - taken : 3;
    x[0] = sum;
    for (std::size_t j = 0; j < more; ++j) x[j + 1] = load(taken + j);
    taken += more;
    pass<Op, T>(taken == count ? output : sum, x, more + 1, n);
  }
}

// Divide n elements by a whole number, which may be larger than T holds; whole numbers are cut off towards zero.
template <class T>
void divide(T* values, std::int64_t divisor, std::size_t n) {
  if constexpr (requires { values->im; }) {
    auto by = static_cast<decltype(values->re)>(divisor);
    for (std::size_t i = 0; i < n; ++i) values[i] = {values[i].re / by, values[i].im / by};
  } else if constexpr (T(1) / T(2) != T(0)) {
    auto by = static_cast<T>(divisor);
    for (std::size_t i = 0; i < n; ++i) values[i] = values[i] / by;
  } else if constexpr (T(-1) < T(0)) {
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(std::int64_t{values[i]} / divisor);
  } else {
    auto by = static_cast<std::uint64_t>(divisor);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<T>(std::uint64_t{values[i]} / by);
  }
}

// For types that are folded as they are stored: the result is made in one place, then copied. That is a destination, or
// else room in the first cache where all of them are written past the caches.
template <class Kind, class Op>
void fold_plain(const FoldJob& job) {
  using T = typename Kind::Stored;
  constexpr std::size_t block = kBlockBytes / sizeof(T);
  alignas(64) T room[kStreamBytes / sizeof(T)];
  auto* output = static_cast<T*>(job.output);
  auto* place = static_cast<T*>(job.place);
  std::size_t piece = job.output_streams || job.place_streams ? kStreamBytes / sizeof(T) : block;
  for (std::size_t at = 0; at < job.length; at += piece) {
    std::size_t n = least(piece, job.length - at);
    // What is read again soon (by the other ranks, in the slot) is made first, in the caches.
    bool needs_room = place != nullptr ? job.place_streams : job.output_streams;
    T* made = needs_room ? room : (place != nullptr ? place : output) + at;
    for (std::size_t b = 0; b < n; b += block) {
      std::size_t m = least(block, n - b);
      auto load = [&](std::size_t j) { return static_cast<const T*>(job.operands[j].data) + at + b; };
      fold_block<Op, T>(made + b, load, job.count, m);
      if (job.divisor != 1) divide(made + b, job.divisor, m);
    }
    if (place != nullptr && made != place + at) copy_bytes_past_caches(place + at, made, n * sizeof(T));
    if (output == nullptr || made == output + at) continue;
    (job.output_streams ? copy_bytes_past_caches : copy_bytes)(output + at, made, n * sizeof(T));
  }
}

// For types that are folded in a wider one: the result is made there, then rounded where it must be.
template <class Kind, class Op>
void fold_wide(const FoldJob& job) {
  using Stored = typename Kind::Stored;
  using Wide = typename Kind::Folded;
  constexpr std::size_t block = kBlockBytes / sizeof(Wide), most = kStreamBytes / sizeof(Wide);
  alignas(64) Wide room[4][block];
  alignas(64) Wide result[block];
  alignas(64) std::byte room_of_place[kStreamBytes];
  alignas(64) Stored room_of_output[most];
  auto* output = static_cast<Stored*>(job.output);
  auto* place = static_cast<std::byte*>(job.place);
  std::size_t place_size = job.is_partial ? sizeof(Wide) : sizeof(Stored);
  std::size_t piece = job.output_streams || job.place_streams ? most : block;
  for (std::size_t at = 0; at < job.length; at += piece) {
    std::size_t n = least(piece, job.length - at);
    auto* to_output = output == nullptr ? nullptr : job.output_streams ? room_of_output : output + at;
    auto* to_place = place == nullptr ? nullptr : job.place_streams ? room_of_place : place + at * place_size;
    for (std::size_t b = 0; b < n; b += block) {
      std::size_t m = least(block, n - b), used = 0;
      auto load = [&](std::size_t j) {
        if (job.operands[j].is_partial) return static_cast<const Wide*>(job.operands[j].data) + at + b;
        Wide* widened = room[used++ % 4];
        Kind::widen(static_cast<const Stored*>(job.operands[j].data) + at + b, widened, m);
        return static_cast<const Wide*>(widened);
      };
      fold_block<Op, Wide>(result, load, job.count, m);
      if (job.divisor != 1) divide(result, job.divisor, m);
      if (output != nullptr) Kind::narrow(result, to_output + b, m);
      if (place == nullptr) continue;
      if (job.is_partial) {
        copy_bytes(reinterpret_cast<Wide*>(to_place) + b, result, m * sizeof(Wide));
      } else {
        Kind::narrow(result, reinterpret_cast<Stored*>(to_place) + b, m);
      }
    }
    if (to_output == room_of_output) copy_bytes_past_caches(output + at, room_of_output, n * sizeof(Stored));
    if (to_place == room_of_place) copy_bytes_past_caches(place + at * place_size, room_of_place, n * place_size);
  }
}

template <class Kind, class Op>
void fold(const FoldJob& job) {
  if constexpr (Kind::converts) {
    fold_wide<Kind, Op>(job);
  } else {
    fold_plain<Kind, Op>(job);
  }
}

template <class Kind>
Fold arithmetic(std::string_view op) {
  if (op == "sum") return fold<Kind, Sum>;
  if (op == "prod") return fold<Kind, Prod>;
  if constexpr (requires(typename Kind::Folded x) { x < x; }) {
    if (op == "min") return fold<Kind, Min>;
    if (op == "max") return fold<Kind, Max>;
  }
  return nullptr;
}

template <class Kind>
Fold whole_number(std::string_view op) {
  if (op == "band") return fold<Kind, And>;
  if (op == "bor") return fold<Kind, Or>;
  if (op == "bxor") return fold<Kind, Xor>;
  return arithmetic<Kind>(op);
}

Fold truth(std::string_view op) {
  if (op == "sum" || op == "max" || op == "bor") return fold<Bool, Or>;
  if (op == "prod" || op == "min" || op == "band") return fold<Bool, And>;
  return op == "bxor" ? fold<Bool, Xor> : nullptr;
}

}  // namespace

#define FARANDOLE_JOIN2(a, b) a##b
#define FARANDOLE_JOIN(a, b) FARANDOLE_JOIN2(a, b)

Fold FARANDOLE_JOIN(find_fold_, FARANDOLE_ISA)(std::string_view dtype, std::string_view op);
Fold FARANDOLE_JOIN(find_fold_, FARANDOLE_ISA)(std::string_view dtype, std::string_view op) {
  if (dtype == "float32") return arithmetic<Plain<float>>(op);
  if (dtype == "float64") return arithmetic<Plain<double>>(op);
  if (dtype == "bfloat16") return arithmetic<BFloat16>(op);
  if (dtype == "float16") return arithmetic<Float16>(op);
  if (dtype == "int8") return whole_number<Plain<std::int8_t>>(op);
  if (dtype == "int16") return whole_number<Plain<std::int16_t>>(op);
  if (dtype == "int32") return whole_number<Plain<std::int32_t>>(op);
  if (dtype == "int64") return whole_number<Plain<std::int64_t>>(op);
  if (dtype == "uint8") return whole_number<Plain<std::uint8_t>>(op);
  if (dtype == "uint16") return whole_number<Plain<std::uint16_t>>(op);
  if (dtype == "uint32") return whole_number<Plain<std::uint32_t>>(op);
  if (dtype == "uint64") return whole_number<Plain<std::uint64_t>>(op);
  if (dtype == "complex64") return arithmetic<Plain<Complex<float>>>(op);
  if (dtype == "complex128") return arithmetic<Plain<Complex<double>>>(op);
  return dtype == "bool" ? truth(op) : nullptr;
}

}  // namespace farandole
