#include "product.hpp"

#include <stdexcept>

namespace msa_ops::emulator::gfx950 {
namespace {

const Product*& chosen() {
  static const Product* made = products().front();
  return made;
}

}  // namespace

std::vector<const Product*> products() {
  std::vector<const Product*> made;
#if defined(__x86_64__)
  for (const Product* one : {&kAvx512Product, &kAvx2Product}) {
    if (one->runs()) made.push_back(one);
  }
#endif
  made.push_back(&kPortableProduct);
  return made;
}

const Product& product() { return *chosen(); }

void choose_product(const std::string& name) {
  for (const Product* one : products()) {
    if (one->name == name) {
      chosen() = one;
      return;
    }
  }
  throw std::invalid_argument("products: '" + name + "' does not run on this processor");
}

}  // namespace msa_ops::emulator::gfx950
