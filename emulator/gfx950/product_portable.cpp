// Matrix arithmetic for every processor.
namespace {
constexpr unsigned kWidth = 4;
}
#include "product_body.hpp"

namespace msa_ops::emulator::gfx950 {
const Product kPortableProduct{"portable", [] { return true; }, unpack, multiply, is_extreme, false};
}  // namespace msa_ops::emulator::gfx950
