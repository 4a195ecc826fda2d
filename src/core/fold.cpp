#include "fold.hpp"

namespace farandole {

Fold find_fold_baseline(std::string_view dtype, std::string_view op);
#if defined(__x86_64__)
Fold find_fold_avx2(std::string_view dtype, std::string_view op);
Fold find_fold_avx512(std::string_view dtype, std::string_view op);
#endif

std::string_view instruction_set() {
#if defined(__x86_64__)
  static const std::string_view best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      return std::string_view("avx512");
    }
    return std::string_view(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") ? "avx2" : "baseline");
  }();
  return best;
#else
  return "baseline";
#endif
}

Fold find_fold(std::string_view dtype, std::string_view op) {
#if defined(__x86_64__)
  if (instruction_set() == "avx512") return find_fold_avx512(dtype, op);
  if (instruction_set() == "avx2") return find_fold_avx2(dtype, op);
#endif
  return find_fold_baseline(dtype, op);
}

std::size_t partial_itemsize(std::string_view dtype, std::size_t itemsize) {
  return dtype == "float16" || dtype == "bfloat16" ? sizeof(float) : itemsize;
}

}  // namespace farandole
