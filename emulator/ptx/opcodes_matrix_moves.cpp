// ldmatrix, stmatrix, movmatrix: 8 x 8 matrices of 16-bit elements and their kin between memory and fragments.
//
// Lane 4 r + c of a fragment holds elements 2 c and 2 c + 1 of row r, or with .trans of column r.
#include <cstring>
#include <string>
#include <utility>

#include "addresses.hpp"
#include "aligned.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr unsigned kRowBytes = 16;

// Addresses of `rows` rows of 16 bytes; lane l of the warp gives that of row l.
std::uint64_t row_address(PtxWarp& warp, const Instruction& i, const Operand& base, unsigned row) {
  std::uint64_t address = warp.value(base, row) + base.addend;
  if (i.form->memory == MemorySpace::kGeneric) {
    return shared_place(warp, address, MemorySpace::kGeneric, row).address;
  }
  return address & 0xffffffffU;
}

void check_row(std::uint64_t address, unsigned lane) {
  if (address % kRowBytes != 0) {
    throw Violation{FaultKind::kMisaligned, "a row of a matrix is 16 bytes and so aligned", static_cast<int>(lane),
                    address};
  }
}

// The rows of 8 x 8 matrices and the like are read or written eight at a time.
void count_rows(PtxWarp& warp, const Instruction& i, const Operand& base, unsigned count, std::size_t bytes, bool write) {
  std::uint64_t addresses[kLanes] = {};
  for (unsigned row = 0; row < count; ++row) addresses[row] = row_address(warp, i, base, row);
  const Mask lanes = count == kLanes ? kAllLanes : (Mask{1} << count) - 1;
  warp.count_shared_request(addresses, kRowBytes, lanes);
  warp.count_bytes(PtxWarp::Space::kShared, write, count * bytes);
}

// m8n8 of 16-bit elements, `count` matrices.
template <unsigned count, bool transpose>
void load_16(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  std::uint16_t rows[count * 8][8];
  for (unsigned row = 0; row < count * 8; ++row) {
    const std::uint64_t address = row_address(warp, i, i.operands[count], row);
    std::memcpy(rows[row], warp.block().shared().read(address, kRowBytes, static_cast<int>(row)), kRowBytes);
  }
  count_rows(warp, i, i.operands[count], count * 8, kRowBytes, false);
  for (unsigned matrix = 0; matrix < count; ++matrix) {
    auto* out = warp.out<std::uint32_t>(i.operands[matrix]);
    const auto& from = &rows[matrix * 8];
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const unsigned row = lane / 4, column = lane % 4 * 2;
      const std::uint32_t low = transpose ? from[column][row] : from[row][column];
      const std::uint32_t high = transpose ? from[column + 1][row] : from[row][column + 1];
      out[lane] = high << 16 | low;
    }
  }
}

// What comes of a register without a value has none either.
template <unsigned count, bool transpose>
void store_16(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const bool some_undefined = warp.any_undefined();
  if (some_undefined) warp.want_defined(i.operands[0], count == 4 ? kAllLanes : (Mask{1} << count % 4 * 8) - 1);
  for (unsigned row = 0; row < count * 8; ++row) {
    const std::uint64_t address = row_address(warp, i, i.operands[0], row);
    std::uint16_t elements[8];
    const auto* values = warp.row<std::uint32_t>(i.operands[1 + row / 8]);
    for (unsigned column = 0; column < 8; ++column) {
      const unsigned r = transpose ? column : row % 8, c = transpose ? row % 8 : column;
      elements[column] = static_cast<std::uint16_t>(values[r * 4 + c / 2] >> (c % 2 * 16));
    }
    SharedMemory& shared = warp.block().shared();
    std::memcpy(shared.write(address, kRowBytes, static_cast<int>(row)), elements, kRowBytes);
    if (!some_undefined) continue;
    for (unsigned column = 0; column < 8; ++column) {
      const unsigned r = transpose ? column : row % 8, c = transpose ? row % 8 : column;
      const bool is_missing = (warp.undefined(i.operands[1 + row / 8]) >> (r * 4 + c / 2) & 1) != 0;
      if (is_missing) shared.unwrite(address + 2 * column, 2);
    }
  }
  count_rows(warp, i, i.operands[0], count * 8, kRowBytes, true);
}

void move_16(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  std::uint32_t in[kLanes];
  std::memcpy(in, warp.row<std::uint32_t>(i.operands[1]), sizeof(in));
  auto* out = warp.out<std::uint32_t>(i.operands[0]);
  const auto element = [&](unsigned row, unsigned column) {
    return in[row * 4 + column / 2] >> (column % 2 * 16) & 0xffffU;
  };
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned row = lane / 4, column = lane % 4 * 2;
    out[lane] = element(column + 1, row) << 16 | element(column, row);
  }
}

// How a row of 16 elements of 8 bits or less stands in 16 bytes of memory: bytes, or codes of 6 bits that fill the
// first 12, or of 4 that fill the first 8. In registers each has a byte: the low bits, the others zero.
enum class Packing { kBytes, kSix, kFour };

template <Packing packing>
void unpack(const unsigned char* from, unsigned char* to) {
  for (unsigned element = 0; element < 16; ++element) {
    if (packing == Packing::kBytes) {
      to[element] = from[element];
    } else if (packing == Packing::kFour) {
      to[element] = from[element / 2] >> (element % 2 * 4) & 15;
    } else {
      const unsigned bit = element * 6;
      unsigned word = from[bit / 8];
      if (bit % 8 > 2) word |= unsigned{from[bit / 8 + 1]} << 8;
      to[element] = static_cast<unsigned char>(word >> (bit % 8) & 63);
    }
  }
}

template <Packing packing>
void load_rows(PtxWarp& warp, const Instruction& i, const Operand& base, unsigned count, unsigned char (*rows)[16]) {
  constexpr unsigned kWords = packing == Packing::kBytes ? 4 : packing == Packing::kSix ? 3 : 2;  // the others pad
  for (unsigned row = 0; row < count; ++row) {
    const std::uint64_t address = row_address(warp, i, base, row);
    check_row(address, row);
    unsigned char packed[kRowBytes] = {};
    for (unsigned word = 0; word < kWords; ++word) {
      std::memcpy(packed + word * 4, warp.block().shared().read(address + word * 4, 4, static_cast<int>(row)), 4);
    }
    unpack<packing>(packed, rows[row]);
  }
  count_rows(warp, i, base, count, kWords * 4, false);
}

// m8n16: lane 4 r + c holds elements 4 c ... 4 c + 3 of row r.
template <unsigned count, Packing packing>
void load_8(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  unsigned char rows[count * 8][16];
  load_rows<packing>(warp, i, i.operands[count], count * 8, rows);
  for (unsigned matrix = 0; matrix < count; ++matrix) {
    auto* out = warp.out<std::uint32_t>(i.operands[matrix]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      std::memcpy(&out[lane], &rows[matrix * 8 + lane / 4][lane % 4 * 4], 4);
    }
  }
}

// m16n16, transposed: two registers a matrix. Byte j of register q of lane 4 r + c is element r + 8 q of row 4 c + j.
template <unsigned count, Packing packing>
void load_8_transposed(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  unsigned char rows[count * 16][16];
  load_rows<packing>(warp, i, i.operands[2 * count], count * 16, rows);
  for (unsigned r = 0; r < 2 * count; ++r) {
    auto* out = warp.out<std::uint32_t>(i.operands[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const auto* from = &rows[r / 2 * 16 + lane % 4 * 4];
      const unsigned column = lane / 4 + r % 2 * 8;
      out[lane] = std::uint32_t{from[3][column]} << 24 | std::uint32_t{from[2][column]} << 16 |
                  std::uint32_t{from[1][column]} << 8 | from[0][column];
    }
  }
}

// m16n8, transposed: byte j of the register of lane 4 r + c becomes byte r + 8 (j / 2) of row 2 c + j % 2.
template <unsigned count>
void store_8(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  for (unsigned row = 0; row < count * 8; ++row) {
    const auto* values = warp.row<std::uint32_t>(i.operands[1 + row / 8]);
    unsigned char bytes[kRowBytes];
    for (unsigned at = 0; at < kRowBytes; ++at) {
      const unsigned lane = at % 8 * 4 + row % 8 / 2, byte = at / 8 * 2 + row % 2;
      bytes[at] = static_cast<unsigned char>(values[lane] >> (8 * byte));
    }
    const std::uint64_t address = row_address(warp, i, i.operands[0], row);
    std::memcpy(warp.block().shared().write(address, kRowBytes, static_cast<int>(row)), bytes, kRowBytes);
  }
  count_rows(warp, i, i.operands[0], count * 8, kRowBytes, true);
}

template <unsigned count>
void add_16(Forms& forms) {
  const std::string number = std::to_string(count), registers = "4*" + number;
  const std::string load = "ldmatrix.sync.aligned.m8n8.x" + number, store = "stmatrix.sync.aligned.m8n8.x" + number;
  for (const auto& [space, memory] : {std::pair<std::string, MemorySpace>{".shared", MemorySpace::kShared},
                                      {"", MemorySpace::kGeneric}}) {
    forms.push_back({load + space + ".b16", "=" + registers + " S", load_16<count, false>, memory});
    forms.push_back({load + ".trans" + space + ".b16", "=" + registers + " S", load_16<count, true>, memory});
    forms.push_back({store + space + ".b16", "S " + registers, store_16<count, false>, memory});
    forms.back().undefined = Form::Undefined::kHandled;
    forms.push_back({store + ".trans" + space + ".b16", "S " + registers, store_16<count, true>, memory});
    forms.back().undefined = Form::Undefined::kHandled;
  }
}

template <unsigned count>
void add_8(Forms& forms) {
  const std::string number = std::to_string(count), registers = "4*" + number;
  const std::string load = "ldmatrix.sync.aligned.m8n16.x" + number + ".shared.b8x16";
  forms.push_back({load + ".b6x16_p32", "=" + registers + " S", load_8<count, Packing::kSix>});
  forms.push_back({load + ".b4x16_p64", "=" + registers + " S", load_8<count, Packing::kFour>});
  const std::string store = "stmatrix.sync.aligned.m16n8.x" + number + ".trans.shared.b8";
  forms.push_back({store, "S " + registers, store_8<count>});
}

template <unsigned count>
void add_8_transposed(Forms& forms) {
  const std::string load = "ldmatrix.sync.aligned.m16n16.x" + std::to_string(count) + ".trans.shared.b8";
  const std::string operands = "=4*" + std::to_string(2 * count) + " S";
  forms.push_back({load, operands, load_8_transposed<count, Packing::kBytes>});
  forms.push_back({load + "x16.b6x16_p32", operands, load_8_transposed<count, Packing::kSix>});
  forms.push_back({load + "x16.b4x16_p64", operands, load_8_transposed<count, Packing::kFour>});
}

}  // namespace

void add_matrix_move_forms(Forms& forms) {
  add_16<1>(forms);
  add_16<2>(forms);
  add_16<4>(forms);
  add_8<1>(forms);
  add_8<2>(forms);
  add_8<4>(forms);
  add_8_transposed<1>(forms);
  add_8_transposed<2>(forms);
  forms.push_back({"movmatrix.sync.aligned.m8n8.trans.b16", "=4 4", move_16});
}

}  // namespace msa_ops::emulator::ptx
