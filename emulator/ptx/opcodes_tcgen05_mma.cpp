// tcgen05.mma: products whose sums stand in tensor memory, issued by one thread for one block or for a pair.
//
// The product is made when the instruction is issued. That it is finished only when a commit has been waited for is
// kept by marking shared memory and tensor memory as in use by the warp's pipeline.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "../matrix/product.hpp"
#include "column_mask.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"
#include "shared_tile.hpp"
#include "sparsity.hpp"
#include "tcgen05_descriptor.hpp"
#include "tensor_work.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using Kind = TensorProduct::Kind;
using Sum = TensorProduct::Sum;
using matrix::Element;

// How the instruction is written.
struct Written {
  TensorProduct product;
  bool a_in_tensor_memory;
  unsigned masks;  // registers of lanes that D leaves alone; 0: no such operand
  bool shifts_a;   // .ashift
};

std::vector<Written>& written_forms() {
  static std::vector<Written> made;
  return made;
}

// Rows by columns of D that stand beside each other: row `row` of the block's share and column `column` of D are at
// lane `lane` and column `at` of tensor memory.
struct Piece {
  unsigned row, rows, lane, column, columns, at;
};

unsigned pieces_of_sums(const TensorProduct& product, std::array<Piece, 4>& pieces) {
  const unsigned rows = product.m / product.group, n = product.n;
  if (rows == 128) {
    pieces[0] = {0, 128, 0, 0, n, 0};
    return 1;
  }
  if (rows == 64 && product.group == 1 && !product.weight_stationary) {
    for (unsigned i = 0; i < 4; ++i) pieces[i] = {16 * i, 16, 32 * i, 0, n, 0};
    return 4;
  }
  const unsigned parts = 128 / rows;
  for (unsigned i = 0; i < parts; ++i) pieces[i] = {0, rows, rows * i, n / parts * i, n / parts, 0};
  return parts;
}

matrix::Kind counted_as(const TensorProduct& product) {
  switch (product.kind) {
    case Kind::kMxf8f6f4: return matrix::Kind::kMxf8f6f4;
    case Kind::kMxf4: return matrix::Kind::kMxf4;
    case Kind::kMxf4nvf4: return matrix::Kind::kMxf4nvf4;
    default: return matrix::kind_of(product.a);
  }
}

// Buffers that are kept from one instruction to the next.
struct Scratch {
  std::vector<unsigned char> bytes;
  std::vector<float> a, b, c, turned;
  std::vector<double> wide_a, wide_b;
  std::vector<std::int32_t> whole_a, whole_b, whole_c;
  std::vector<float> a_scales, b_scales;
};

Scratch& scratch() {
  static thread_local Scratch made;
  return made;
}

class Execution {
 public:
  Execution(PtxWarp& warp, const Instruction& i, const Written& written, unsigned lane)
      : warp_(warp), i_(i), written_(written), product_(written.product), lane_(lane), access_(pipe_access(warp, lane)) {}

  void run() {
    const Operand* next = i_.operands.data();
    d_ = tensor_address(warp_, *next++, lane_);
    const Operand& a = *next++;
    const SharedTile b_tile = SharedTile::of_blackwell(warp_.value(*next++, lane_));
    const Operand* metadata = product_.sparse ? next++ : nullptr;
    decode(product_, static_cast<std::uint32_t>(warp_.value(*next++, lane_)), warp_.block().cluster().chip());
    const Operand* scales = next;
    if (product_.scale_block != 0) next += 2;
    const Operand* masks = next;
    next += written_.masks;
    const bool keeps = (warp_.predicate(*next++) >> lane_ & 1) != 0;
    const Operand* last = next != i_.operands.data() + i_.operands.size() && next->present ? next : nullptr;
    const Operand* shift = product_.weight_stationary ? nullptr : last;
    if (product_.weight_stationary && last != nullptr) mask_ = ColumnMask(warp_.value(*last, lane_), product_);
    if (written_.shifts_a && product_.m < 128) {
      throw Violation{FaultKind::kDescriptor, "M " + std::to_string(product_.m) + " with .ashift; accepted: 128, 256"};
    }

    warp_.count_flops(counted_as(product_), std::uint64_t{2} * product_.m * product_.n * product_.k);
    Scratch& memory = scratch();
    gather_b(b_tile, memory);
    for (unsigned block = 0; block < product_.group; ++block) {
      ThreadBlock& where = block_of(block);
      if (written_.a_in_tensor_memory) gather_a_of_tensor_memory(where, tensor_address(warp_, a, lane_), memory);
      else gather_a(where, SharedTile::of_blackwell(warp_.value(a, lane_)), memory);
      if (metadata != nullptr) gather_metadata(where, tensor_address(warp_, *metadata, lane_));
      claim_sums(where, keeps);
      if (product_.sum == Sum::kS32) multiply_integers(where, keeps, masks, block, memory);
      else multiply_floats(where, keeps, shift, scales, masks, block, memory);
      if (written_.shifts_a) shift_a(where, tensor_address(warp_, a, lane_));
    }
  }

 private:
  // The even block of a pair holds the first rows.
  ThreadBlock& block_of(unsigned index) {
    if (product_.group == 1) return warp_.block();
    return warp_.block().cluster().block((warp_.block().rank() & ~1U) + index);
  }
  unsigned rows() const { return product_.m / product_.group; }

  // .ashift: when the product is made, rows of A move on as by tcgen05.shift, in all quarters of the lanes.
  void shift_a(ThreadBlock& block, const TensorAddress& address) {
    const unsigned bits = matrix::bits_of(product_.a);
    const unsigned columns = product_.kept() * (bits < 8 ? 8 : bits) / 32;
    shift_down(block, {address.lane, TensorMemory::kLanes, address.column, columns}, access_, tensor_pipe(warp_));
  }

  // ---- operands

  // A number a lane of 32 bits: fp32, or int32 for kind::i8.
  template <typename Number>
  static void numbers_from(const TensorProduct& product, Element element, const unsigned char* bytes, std::size_t count,
                           bool padded, Number* out) {
    if constexpr (std::is_same_v<Number, std::int32_t>) {
      (void)product;
      (void)padded;
      matrix::integers_from_packed(element, bytes, out, count);
    } else if (!padded || matrix::bits_of(element) >= 8 || product.packs_nibbles()) {
      matrix::floats_from_packed(element, bytes, out, count);
    } else {
      // 16 elements in the first bytes of each 16; what is beyond pads.
      for (std::size_t at = 0; at < count; at += 16) {
        matrix::floats_from_packed(element, bytes + at, out + at, 16);
      }
    }
  }

  // `count` rows from row `first` of the operand of a block, of `depth` elements, as [count][depth] or turned. Rows that count as zeros are
  // not read, but for those of which an MN-major chunk holds others too.
  template <typename Number>
  void gather_shared(ThreadBlock& block, const SharedTile& tile, Element element, bool mn_major, unsigned count,
                     unsigned depth, bool k_outside, Number* out, std::vector<Number>& turned, unsigned first = 0) {
    const std::uint64_t window = std::uint64_t{block.rank()} << warp_.kernel().rank_shift();
    const auto bytes_at = [&](std::uint32_t address) {
      return block.shared().will_read(window + address, kChunk, kChunk, access_, static_cast<int>(lane_));
    };
    const std::size_t numbers = std::size_t{count} * depth;
    const unsigned row_bytes = product_.bytes_of(depth);
    std::vector<unsigned char>& bytes = scratch().bytes;
    bytes.resize(std::size_t{count} * std::max(row_bytes, depth * matrix::bits_of(element) / 8));
    if (mn_major) {
      copy_mn_major(tile, first, count, matrix::bits_of(element), depth, bytes.data(), bytes_at);
    } else if (!k_outside || !mask_.any()) {
      copy_k_major(tile, first, count, row_bytes, bytes.data(), bytes_at);
    } else {
      std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
      for (unsigned row = 0; row < count; ++row) {
        if (mask_.is_zero(row)) continue;
        copy_k_major(tile, first + row, 1, row_bytes, bytes.data() + std::size_t{row} * row_bytes, bytes_at);
      }
    }
    if (mn_major == k_outside) return numbers_from(product_, element, bytes.data(), numbers, !mn_major, out);
    turned.resize(numbers);
    numbers_from(product_, element, bytes.data(), numbers, !mn_major, turned.data());
    if (mn_major) matrix::transpose(turned.data(), depth, count, out);
    else matrix::transpose(turned.data(), count, depth, out);
  }

  // B as [k][n], its columns from both blocks of a pair.
  void gather_b(const SharedTile& tile, Scratch& memory) {
    const unsigned columns = product_.n / product_.group;
    if (product_.sum == Sum::kS32) gather_columns(tile, columns, memory.whole_b, memory.whole_a);
    else gather_columns(tile, columns, memory.b, memory.turned);
  }
  template <typename Number>
  void gather_columns(const SharedTile& tile, unsigned columns, std::vector<Number>& b, std::vector<Number>& turned) {
    b.resize(std::size_t{product_.n} * product_.k);
    if (product_.group == 1) {
      const unsigned shift = mask_.shift();
      if (product_.b_mn_major && shift % (kChunk * 8 / matrix::bits_of(product_.b)) != 0) {
        throw Violation{FaultKind::kDescriptor, "unsupported: a shift of " + std::to_string(shift) +
                                                    " columns of MN-major B, which is not whole chunks of 16 bytes"};
      }
      gather_shared(block_of(0), tile, product_.b, product_.b_mn_major, columns, product_.k, true, b.data(), turned, shift);
      for (unsigned column = 0; mask_.any() && column < columns; ++column) {
        if (!mask_.is_zero(column)) continue;
        for (unsigned k = 0; k < product_.k; ++k) b[std::size_t{k} * columns + column] = 0;
      }
      return;
    }
    std::vector<Number> part(std::size_t{columns} * product_.k);
    for (unsigned block = 0; block < product_.group; ++block) {
      gather_shared(block_of(block), tile, product_.b, product_.b_mn_major, columns, product_.k, true, part.data(), turned);
      for (unsigned k = 0; k < product_.k; ++k) {
        std::copy_n(part.data() + std::size_t{k} * columns, columns,
                    b.data() + std::size_t{k} * product_.n + block * columns);
      }
    }
  }

  void gather_a(ThreadBlock& block, const SharedTile& tile, Scratch& memory) {
    const std::size_t numbers = std::size_t{rows()} * product_.kept();
    if (product_.sum == Sum::kS32) {
      memory.whole_a.resize(numbers);
      std::vector<std::int32_t> turned;
      gather_shared(block, tile, product_.a, product_.a_mn_major, rows(), product_.kept(), false, memory.whole_a.data(), turned);
    } else {
      memory.a.resize(numbers);
      gather_shared(block, tile, product_.a, product_.a_mn_major, rows(), product_.kept(), false, memory.a.data(), memory.turned);
    }
  }

  // Rows in lanes as the rows of D, elements without gaps in the columns, those of less than 8 bits in bytes
  // (tensor_work.hpp). Where D's rows stand in several lanes, each of them has its copy of A.
  void gather_a_of_tensor_memory(ThreadBlock& block, const TensorAddress& address, Scratch& memory) {
    const unsigned bits = matrix::bits_of(product_.a);
    if (product_.a_mn_major) throw Violation{FaultKind::kDescriptor, "A in tensor memory is K-major"};
    const bool in_bytes = bits < 8 && !product_.packs_nibbles();
    const unsigned row_bytes = product_.kept() * (in_bytes ? 8 : bits) / 8;
    std::vector<unsigned char>& bytes = memory.bytes;
    bytes.resize(std::size_t{rows()} * row_bytes);
    std::array<Piece, 4> pieces{};
    const unsigned count = pieces_of_sums(product_, pieces);
    for (unsigned i = 0; i < count; ++i) {
      const Piece& piece = pieces[i];
      block.tensor_memory().will_read({address.lane + piece.lane, piece.rows, address.column, row_bytes / 4}, access_,
                                      tensor_pipe(warp_));
      for (unsigned row = 0; row < piece.rows; ++row) {
        const std::uint32_t* from = block.tensor_memory().lane(address.lane + piece.lane + row) + address.column;
        unsigned char* to = bytes.data() + std::size_t{piece.row + row} * row_bytes;
        if (piece.column > 0 && std::memcmp(to, from, row_bytes) != 0) {
          throw Violation{FaultKind::kTensorMemory, "the copies of row " + std::to_string(row) + " of A in lanes " +
                                                        std::to_string(address.lane + row) + " and " +
                                                        std::to_string(address.lane + piece.lane + row) + " differ"};
        }
        std::memcpy(to, from, row_bytes);
      }
    }
    const std::size_t numbers = std::size_t{rows()} * product_.kept();
    if (product_.sum == Sum::kS32) {
      memory.whole_a.resize(numbers);
      numbers_from(product_, product_.a, bytes.data(), numbers, false, memory.whole_a.data());
    } else {
      memory.a.resize(numbers);
      if (in_bytes) {
        const float* values = matrix::values_of(product_.a);
        const unsigned shift = shift_in_byte(bits);
        for (std::size_t at = 0; at < numbers; ++at) memory.a[at] = values[bytes[at] >> shift & ((1U << bits) - 1)];
      } else {
        numbers_from(product_, product_.a, bytes.data(), numbers, false, memory.a.data());
      }
    }
  }

  // ---- sparsity

  // Which elements rows of A hold, out of tensor memory. With 16 chunks a row they are two columns of the row's lane; with
  // 8 rows r and r + 8 share the words of lanes r and r + 8 of each 16, the first lane's for the first half of k, and r in
  // the lower halves. So CUTLASS lays them out (tmem_e_frg); blocks of 64 rows it does not have.
  void gather_metadata(ThreadBlock& block, const TensorAddress& address) {
    sparse_.emplace(product_.a, rows(), product_.k);
    const bool in_rows = sparse_->chunks() == 16;
    const unsigned column = address.column + product_.selector, columns = in_rows ? 2 : 1;
    TensorMemory& memory = block.tensor_memory();
    memory.will_read({address.lane, rows(), column, columns}, access_, tensor_pipe(warp_));
    for (unsigned row = 0; row < rows(); ++row) {
      for (unsigned at = 0; at < sparse_->chunks(); ++at) {
        const unsigned lane = address.lane + (in_rows ? row : row / 16 * 16 + row % 8 + at / 4 * 8);
        const std::uint32_t word = memory.lane(lane)[column + (in_rows ? at / 8 : 0)];
        const unsigned shift = in_rows ? at % 8 * 4 : row / 8 % 2 * 16 + at % 4 * 4;
        sparse_->set(row, at, word >> shift & 15, SparseRows::Rule::kTensorMemory, lane_);
      }
    }
  }

  // ---- scale factors

  // Those of `count` rows, [k / block][count]: row r in lane r % 32 and column r / 32, a byte a block of k, the same
  // in all four quarters of the lanes, or for each half of the rows in one half of the lanes.
  void gather_scales(ThreadBlock& block, const Operand& operand, unsigned id, unsigned count, bool in_halves,
                     std::vector<float>& out, bool by_lane = false) {
    const TensorAddress address = tensor_address(warp_, operand, lane_);
    const unsigned blocks = product_.k / product_.scale_block;
    // What goes beyond four bytes stands in the columns after those of all rows; a product of K 64 or less must not.
    if (id + blocks > (product_.k > 64 ? 8U : 4U)) {
      throw Violation{FaultKind::kDescriptor, "the instruction descriptor begins with scale factor " + std::to_string(id) +
                                                  " of four, and the product takes " + std::to_string(blocks)};
    }
    TensorMemory& memory = block.tensor_memory();
    if (by_lane) return gather_scales_by_lane(memory, address, id, count, blocks, out);
    const unsigned half = in_halves ? count / 2 : count;
    const unsigned columns = (half + 31) / 32;
    memory.will_read({0, TensorMemory::kLanes, address.column, columns * ((id + blocks + 3) / 4)}, access_,
                     tensor_pipe(warp_));
    const float* values = matrix::values_of(product_.scale);
    out.resize(std::size_t{blocks} * count);
    for (unsigned row = 0; row < count; ++row) {
      const unsigned inside = row % half, lane = inside % 32 + (in_halves && row >= half ? 64 : 0);
      for (unsigned at = 0; at < blocks; ++at) {
        const unsigned column = address.column + inside / 32 + (id + at) / 4 * columns, shift = (id + at) % 4 * 8;
        const std::uint32_t word = memory.lane(lane)[column];
        for (unsigned copy = lane + 32; copy < (in_halves ? lane / 64 * 64 + 64 : 128U); copy += 32) {
          if (((memory.lane(copy)[column] ^ word) >> shift & 255) != 0) {
            throw Violation{FaultKind::kTensorMemory,
                            "the copies of scale factors in lanes " + std::to_string(lane) + " and " +
                                std::to_string(copy) + " of column " + std::to_string(column) + " differ"};
          }
        }
        out[std::size_t{at} * count + row] = values[word >> shift & 255];
      }
    }
  }

  // The other layout of A's: row r in lane r, so that four bytes take one column.
  void gather_scales_by_lane(TensorMemory& memory, const TensorAddress& address, unsigned id, unsigned count,
                             unsigned blocks, std::vector<float>& out) {
    memory.will_read({0, count, address.column, (id + blocks + 3) / 4}, access_, tensor_pipe(warp_));
    const float* values = matrix::values_of(product_.scale);
    out.resize(std::size_t{blocks} * count);
    for (unsigned row = 0; row < count; ++row) {
      for (unsigned at = 0; at < blocks; ++at) {
        const std::uint32_t word = memory.lane(row)[address.column + (id + at) / 4];
        out[std::size_t{at} * count + row] = values[word >> (id + at) % 4 * 8 & 255];
      }
    }
  }

  // ---- sums

  void claim_sums(ThreadBlock& block, bool keeps) {
    std::array<Piece, 4> pieces{};
    const unsigned count = pieces_of_sums(product_, pieces);
    for (unsigned i = 0; i < count; ++i) {
      const TensorMemory::Range range{d_.lane + pieces[i].lane, pieces[i].rows, d_.column + pieces[i].at, pieces[i].columns};
      if (keeps) block.tensor_memory().will_read(range, access_, tensor_pipe(warp_));
      block.tensor_memory().will_write(range, access_, tensor_pipe(warp_));
    }
  }

  // Calls function(words of tensor memory, place in [rows][n], how many) for the runs of D.
  template <typename Function>
  void for_runs(ThreadBlock& block, const Operand* masks, unsigned index, Function function) {
    std::array<Piece, 4> pieces{};
    const unsigned count = pieces_of_sums(product_, pieces);
    for (unsigned i = 0; i < count; ++i) {
      const Piece& piece = pieces[i];
      for (unsigned row = 0; row < piece.rows; ++row) {
        const unsigned lane = d_.lane + piece.lane + row;
        if (masks != nullptr && written_.masks > 0) {
          const unsigned bit = index * 128 + lane;
          if ((warp_.value(masks[bit / 32], lane_) >> bit % 32 & 1) != 0) continue;
        }
        function(block.tensor_memory().lane(lane) + d_.column + piece.at,
                 std::size_t{piece.row + row} * product_.n + piece.column, piece.columns);
      }
    }
  }

  void multiply_integers(ThreadBlock& block, bool keeps, const Operand* masks, unsigned index, Scratch& memory) {
    std::vector<std::int32_t>& c = memory.whole_c;
    c.assign(std::size_t{rows()} * product_.n, 0);
    if (keeps) {
      for_runs(block, nullptr, index, [&](const std::uint32_t* words, std::size_t at, unsigned count) {
        std::memcpy(c.data() + at, words, count * sizeof(std::int32_t));
      });
    }
    if (sparse_) {
      sparse_->multiply_add(memory.whole_a.data(), memory.whole_b.data(), c.data(), product_.n, product_.saturate);
    } else {
      matrix::multiply_add(memory.whole_a.data(), memory.whole_b.data(), c.data(), {rows(), product_.n, product_.k},
                           product_.saturate);
    }
    for_runs(block, masks, index, [&](std::uint32_t* words, std::size_t at, unsigned count) {
      std::memcpy(words, c.data() + at, count * sizeof(std::int32_t));
    });
  }

  void multiply_floats(ThreadBlock& block, bool keeps, const Operand* shift, const Operand* scales, const Operand* masks,
                       unsigned index, Scratch& memory) {
    std::vector<float>& c = memory.c;
    c.assign(std::size_t{rows()} * product_.n, 0.0F);
    const bool halves = product_.sum == Sum::kF16;
    if (keeps) {
      for_runs(block, nullptr, index, [&](const std::uint32_t* words, std::size_t at, unsigned count) {
        if (!halves) {
          std::memcpy(c.data() + at, words, count * sizeof(float));
          return;
        }
        for (unsigned i = 0; i < count; ++i) {
          const auto code = static_cast<std::uint16_t>(words[i]);
          matrix::floats_from(Element::kF16, &code, &c[at + i], 1);
        }
      });
      if (shift != nullptr) {
        const auto power = static_cast<int>(warp_.value(*shift, lane_));
        if (power > 15) throw Violation{FaultKind::kDescriptor, "scale-input-d; accepted: 0 to 15"};
        for (float& value : c) value = std::ldexp(value, -power);
      }
    }
    if (product_.negate_a != product_.negate_b) {
      for (float& value : memory.a) value = -value;
    }
    const matrix::Extent extent{rows(), product_.n, product_.k};
    const std::uint32_t* order = warp_.matrix_order(product_.kept());
    if (sparse_) sparse_->multiply_add(memory.a.data(), memory.b.data(), c.data(), product_.n, order);
    else if (product_.scale_block == 0) matrix::multiply_add(memory.a.data(), memory.b.data(), c.data(), extent, order);
    else multiply_scaled(block, scales, extent, order, memory);
    for_runs(block, masks, index, [&](std::uint32_t* words, std::size_t at, unsigned count) {
      if (!halves) {
        std::memcpy(words, c.data() + at, count * sizeof(float));
        return;
      }
      for (unsigned i = 0; i < count; ++i) words[i] = matrix::half_from(c[at + i]);
    });
  }

  // Scaled operands are exact in fp32 unless scale factors are extreme; then fp64 takes their place.
  void multiply_scaled(ThreadBlock& block, const Operand* scales, const matrix::Extent& extent,
                       const std::uint32_t* order, Scratch& memory) {
    const unsigned block_size = product_.scale_block, n = product_.n, k = product_.k;
    const bool halves = product_.group == 2 && rows() == 64;
    gather_scales(block, scales[0], product_.a_scale_id, rows(), false, memory.a_scales, product_.a_scales_by_lane);
    gather_scales(block, scales[1], product_.b_scale_id, n, halves, memory.b_scales);
    const auto is_moderate = [](const std::vector<float>& values) {
      return std::all_of(values.begin(), values.end(), [](float value) {
        return value == 0 || (value > 0x1p-50F && value < 0x1p50F) || std::isnan(value);
      });
    };
    const bool narrow = is_moderate(memory.a_scales) && is_moderate(memory.b_scales);
    const auto scale = [&](auto& a, auto& b) {
      a.resize(std::size_t{rows()} * k);
      b.resize(std::size_t{k} * n);
      using Number = typename std::decay_t<decltype(a)>::value_type;
      for (unsigned row = 0; row < rows(); ++row) {
        for (unsigned at = 0; at < k; ++at) {
          a[std::size_t{row} * k + at] = static_cast<Number>(memory.a[std::size_t{row} * k + at]) *
                                         static_cast<Number>(memory.a_scales[at / block_size * rows() + row]);
        }
      }
      for (unsigned at = 0; at < k; ++at) {
        const float* factors = memory.b_scales.data() + std::size_t{at / block_size} * n;
        for (unsigned column = 0; column < n; ++column) {
          b[std::size_t{at} * n + column] =
              static_cast<Number>(memory.b[std::size_t{at} * n + column]) * static_cast<Number>(factors[column]);
        }
      }
      matrix::multiply_add(a.data(), b.data(), memory.c.data(), extent, order);
    };
    if (narrow) scale(scaled_a_, scaled_b_);
    else scale(memory.wide_a, memory.wide_b);
  }

  PtxWarp& warp_;
  const Instruction& i_;
  const Written& written_;
  TensorProduct product_;
  unsigned lane_;
  AccessId access_;
  TensorAddress d_{};
  ColumnMask mask_;
  std::optional<SparseRows> sparse_;
  inline static thread_local std::vector<float> scaled_a_, scaled_b_;
};

void mma(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Written& written = written_forms()[i.form->variant];
  use_cta_group(warp, written.product.group);
  for_lanes(lanes, [&](unsigned lane) { Execution(warp, i, written, lane).run(); });
}

// ---- forms

void add(Forms& forms, const std::string& opcode, const TensorProduct& product) {
  for (const bool a_in_tensor_memory : {false, true}) {
    for (const unsigned masks : {0U, product.group * 4}) {
      if (masks > 0 && (product.scale_block != 0 || product.weight_stationary)) continue;
      Form form;
      form.opcode = opcode + (a_in_tensor_memory ? " ta" : "") + (masks > 0 ? " m" + std::to_string(masks) : "");
      form.operands = std::string("T ") + (a_in_tensor_memory ? "T" : "8") + (product.sparse ? " 8 T 4" : " 8 4");
      if (product.scale_block != 0) form.operands += " T T";
      if (masks > 0) form.operands += " 4*" + std::to_string(masks);
      form.operands += " p";
      const bool shifts = product.kind == Kind::kF16 || product.kind == Kind::kTf32;
      if (product.weight_stationary) form.operands += " 8?";
      else if (shifts) form.operands += " 4?";
      form.handler = mma;
      for (const bool shifts_a : {false, true}) {
        if (shifts_a && (!a_in_tensor_memory || product.sparse || product.scale_block != 0 || product.weight_stationary)) continue;
        Form made = form;
        if (shifts_a) made.opcode.insert(opcode.size(), ".ashift");
        made.variant = static_cast<std::uint32_t>(written_forms().size());
        written_forms().push_back({product, a_in_tensor_memory, masks, shifts_a});
        forms.push_back(std::move(made));
      }
    }
  }
}

}  // namespace

void add_tcgen05_mma_forms(Forms& forms) {
  for (const unsigned group : {1U, 2U}) {
    const std::string start = "tcgen05.mma.cta_group::" + std::to_string(group) + ".kind::";
    TensorProduct product;
    product.group = group;
    for (const Kind kind : {Kind::kF16, Kind::kTf32, Kind::kF8f6f4, Kind::kI8}) {
      product.kind = kind;
      add(forms, start + name_of(kind), product);
      TensorProduct sparse = product;
      sparse.sparse = true;
      add(forms, "tcgen05.mma.sp.cta_group::" + std::to_string(group) + ".kind::" + name_of(kind), sparse);
    }
    const auto add_scaled = [&](Kind kind, unsigned block, std::initializer_list<const char*> names) {
      product.kind = kind;
      product.scale_block = block;
      for (const char* name : names) add(forms, start + name_of(kind) + ".block_scale" + name, product);
    };
    add_scaled(Kind::kMxf8f6f4, 32, {"", ".block32", ".scale_vec::1X"});
    add_scaled(Kind::kMxf4, 32, {"", ".block32", ".scale_vec::2X"});
    add_scaled(Kind::kMxf4nvf4, 32, {".block32", ".scale_vec::2X"});
    add_scaled(Kind::kMxf4nvf4, 16, {".block16", ".scale_vec::4X"});
  }
  TensorProduct product;
  product.weight_stationary = true;
  for (const Kind kind : {Kind::kF16, Kind::kTf32, Kind::kF8f6f4, Kind::kI8}) {
    product.kind = kind;
    add(forms, "tcgen05.mma.ws.cta_group::1.kind::" + name_of(kind), product);
  }
}

}  // namespace msa_ops::emulator::ptx
