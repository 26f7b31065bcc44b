// Matrix arithmetic for processors of x86-64 with AVX512; the build compiles this file, and no other, for them.
#if defined(__x86_64__)
namespace {
constexpr unsigned kWidth = 16;
}
#include "product_body.hpp"

namespace msa_ops::emulator::gfx950 {
const Product kAvx512Product{
    "avx512", [] { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma"); },
    unpack, multiply, is_extreme, true};
}  // namespace msa_ops::emulator::gfx950
#endif
