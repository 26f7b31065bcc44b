// The arithmetic of matrix instructions, for the widest vectors that the processor has.
//
// Every implementation gives the same bits: products are exact and are added one by one in the order of k, each sum
// rounded once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace msa_ops::emulator::gfx950 {

// How registers hold the elements of an operand; the narrow ones from the lowest bits up.
enum class Element : std::uint8_t { kF32, kF16, kBf16, kE4m3, kE5m2, kE2m3, kE3m2, kE2m1, kI8 };

// Where the elements of one operand are: a lane holds a run of a line (a row of A, a column of B).
struct OperandPlace {
  Element element;
  const std::uint32_t* rows;    // of registers, 64 lanes each; lane 0 is the first line's
  unsigned lines;               // 4, 16 or 32
  unsigned groups;              // runs of lanes that hold the same lines further on in k
  unsigned dwords;              // of a lane
  unsigned run;                 // elements of a lane that are neighbours in k; then come those half of k further on
  const float* scales;          // null, or of each line for 32 elements of k: [k / 32][lines]
};

struct Product {
  const char* name;
  bool (*runs)();               // on this processor
  // out: [k][lines].
  void (*unpack)(const OperandPlace& operand, unsigned k, float* out);
  // c[i][j] += a[k][i] * b[k][j], k ascending; all [..][n]. `exact`: fp32 holds every product.
  void (*multiply)(unsigned n, const float* a, const float* b, float* c, unsigned k, bool exact);
  // Whether there is a number other than zero outside 2^-55 .. 2^55, so that products may not be exact.
  bool (*is_extreme)(const float* values, unsigned count);
  bool fused;                   // multiply never needs to know whether products are exact
};

extern const Product kPortableProduct;
#if defined(__x86_64__)
extern const Product kAvx2Product, kAvx512Product;
#endif

// Those that this processor runs, the best one first.
std::vector<const Product*> products();
const Product& product();
// For tests: takes the one of this name. Throws std::invalid_argument.
void choose_product(const std::string& name);

}  // namespace msa_ops::emulator::gfx950
