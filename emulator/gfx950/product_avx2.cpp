// Matrix arithmetic for processors of x86-64 with AVX2; the build compiles this file, and no other, for them.
#if defined(__x86_64__)
namespace {
constexpr unsigned kWidth = 8;
}
#include "product_body.hpp"

namespace msa_ops::emulator::gfx950 {
const Product kAvx2Product{
    "avx2", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
    unpack, multiply, is_extreme, true};
}  // namespace msa_ops::emulator::gfx950
#endif
