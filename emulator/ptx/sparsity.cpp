#include "sparsity.hpp"

#include <algorithm>
#include <string>

#include "../matrix/product.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using matrix::Element;

// Elements that a chunk of four bits of metadata stands for. E2M1 is that of kind::f8f6f4.
unsigned chunk_of(Element element) {
  if (element == Element::kE2m1) return 4;
  switch (matrix::bits_of(element)) {
    case 32: return 2;
    case 4: return 8;
    default: return 4;
  }
}

std::string in_bits(unsigned nibble) {
  std::string text = "0b";
  for (unsigned bit = 4; bit-- > 0;) text += (nibble >> bit & 1) != 0 ? '1' : '0';
  return text;
}

bool is_valid(Element element, SparseRows::Rule rule, unsigned nibble) {
  if (matrix::bits_of(element) == 32) return nibble == 0b0100 || nibble == 0b1110;
  const unsigned first = nibble & 3, second = nibble >> 2;
  if (rule == SparseRows::Rule::kAny) return first != second;
  return first < second || (rule == SparseRows::Rule::kTensorMemory && nibble == 0b0110);
}

}  // namespace

SparseRows::SparseRows(Element element, unsigned rows, unsigned k)
    : element_(element), rows_(rows), k_(k), chunk_(chunk_of(element)), kept_(k / 2), places_(std::size_t{rows} * kept_) {}

void SparseRows::set(unsigned row, unsigned chunk, unsigned nibble, Rule rule, unsigned lane) {
  if (!is_valid(element_, rule, nibble)) {
    throw Violation{FaultKind::kDescriptor,
                    "sparsity metadata " + in_bits(nibble) + " for row " + std::to_string(row) + ", elements " +
                        std::to_string(chunk * chunk_) + " to " + std::to_string(chunk * chunk_ + chunk_ - 1),
                    static_cast<int>(lane)};
  }
  std::uint32_t* places = places_.data() + row * kept_ + chunk * chunk_ / 2;
  if (chunk_ == 2) {
    *places = chunk * chunk_ + (nibble == 0b1110 ? 1 : 0);
    return;
  }
  const unsigned each = chunk_ == 8 ? 2 : 1;  // elements of an index
  for (const unsigned index : {nibble & 3, nibble >> 2}) {
    for (unsigned i = 0; i < each; ++i) *places++ = chunk * chunk_ + index * each + i;
  }
}

unsigned Sparsity::selectors(Element element, unsigned k) {
  const unsigned chunks = k / chunk_of(element);
  return chunks == 4 ? 4 : chunks == 8 ? 2 : 1;
}

Sparsity::Sparsity(const PtxWarp& warp, Element element, unsigned k, bool ordered, const Operand& metadata,
                   const Operand& selector)
    : SparseRows(element, kRows, k) {
  const unsigned group = 4 / selectors(element, k);
  const unsigned chosen = warp.row<std::uint32_t>(selector)[0];
  if (selector.space != Operand::Space::kConstants || chosen >= selectors(element, k)) {
    throw Violation{FaultKind::kDescriptor, "the sparsity selector is a number from 0 to " +
                                                std::to_string(selectors(element, k) - 1) + " there"};
  }
  const auto* words = warp.row<std::uint32_t>(metadata);
  // A word has all chunks of one row, or half of them, or half of those of both rows.
  const bool integers = element >= Element::kS8 && element <= Element::kU4;
  const bool one_row = group == 4 || (group == 2 && integers);
  const unsigned both = one_row ? 8 : 4;  // chunks of one row in a word
  for (unsigned row = 0; row < kRows; ++row) {
    for (unsigned at = 0; at < chunks(); ++at) {
      const unsigned member = one_row ? row / 8 + at / both * 2 : at / both;
      const unsigned lane = row % 8 * 4 + chosen * group + member;
      const unsigned shift = at % both * 4 + (one_row ? 0 : row / 8 * 16);
      warp.want_defined(metadata, Mask{1} << lane);
      set(row, at, words[lane] >> shift & 15, ordered ? Rule::kAscending : Rule::kAny, lane);
    }
  }
}

template <typename Number>
const Number* SparseRows::rows_of(unsigned row, const Number* b, unsigned n, std::vector<Number>& memory) const {
  memory.resize(std::size_t{kept_} * n);
  for (unsigned i = 0; i < kept_; ++i) {
    const Number* from = b + std::size_t{places_[row * kept_ + i]} * n;
    std::copy(from, from + n, memory.data() + std::size_t{i} * n);
  }
  return memory.data();
}

void SparseRows::multiply_add(const float* a, const float* b, float* c, unsigned n, const std::uint32_t* order) const {
  std::vector<float> memory;
  for (unsigned row = 0; row < rows_; ++row) {
    matrix::multiply_add(a + row * kept_, rows_of(row, b, n, memory), c + row * n, {1, n, kept_}, order);
  }
}

void SparseRows::multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, unsigned n,
                            bool saturate) const {
  std::vector<std::int32_t> memory;
  for (unsigned row = 0; row < rows_; ++row) {
    matrix::multiply_add(a + row * kept_, rows_of(row, b, n, memory), c + row * n, {1, n, kept_}, saturate);
  }
}

}  // namespace msa_ops::emulator::ptx
