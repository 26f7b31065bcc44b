#include "decoder.hpp"

#include <cstring>

#include "forms.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr unsigned kLiteral = 255;
constexpr unsigned kSdwa = 249;
constexpr unsigned kDpp = 250;
constexpr unsigned kScc = 253;
constexpr unsigned kFirstVector = 256;
constexpr unsigned kScalars = 128;

unsigned bits(std::uint32_t word, unsigned high, unsigned low) {
  return word >> low & ((high - low == 31) ? ~0U : (1U << (high - low + 1)) - 1);
}

bool is_packed_half(Type type) { return type == Type::kPkF16 || type == Type::kPkB16; }
bool is_half(Type type) { return type == Type::kF16 || type == Type::kB16; }

class Decoder {
 public:
  Decoder(const std::vector<std::uint8_t>& text, std::uint32_t offset) : text_(text), offset_(offset) {}

  Instruction decode() {
    made_.address = offset_;
    made_.word0 = word(0);
    const std::uint32_t w = made_.word0;
    made_.size = 4;
    if ((w >> 31) == 0) {
      if ((w >> 25) == 0x3f) vop1();
      else if ((w >> 25) == 0x3e) vopc();
      else vop2();
    } else if ((w >> 30) == 2) {
      scalar();
    } else {
      made_.word1 = word(4);
      made_.size = 8;
      switch (w >> 26) {
        case 0x30: smem(); break;
        case 0x34: vop3(); break;
        case 0x36: ds(); break;
        case 0x37: flat(); break;
        case 0x38: mubuf(); break;
        default: unknown("an encoding that is not of this chip, or of images");
      }
    }
    made_.handler = made_.form->handler;
    collect();
    return made_;
  }

 private:
  [[noreturn]] void unknown(const std::string& what) const {
    std::string words = hex(made_.word0);
    if (made_.size > 4) words += " " + hex(made_.word1);
    throw Unsupported("at " + hex(offset_) + ": " + words + ": " + what);
  }

  std::uint32_t word(unsigned at) const {
    if (std::size_t{offset_} + at + 4 > text_.size()) {
      throw CodeObjectError("code object: the instruction at " + hex(offset_) + " runs over the end of .text");
    }
    std::uint32_t value;
    std::memcpy(&value, &text_[offset_ + at], 4);
    return value;
  }

  void form(Encoding encoding, unsigned number) {
    made_.encoding = encoding;
    made_.form = find_form(encoding, number);
    if (made_.form == nullptr) {
      static const char* const kNames[] = {"SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "SMEM", "VOP1", "VOP2", "VOPC",
                                           "VOP3", "VOP3P", "MFMA", "DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF"};
      unknown(std::string(kNames[static_cast<unsigned>(encoding)]) + " opcode " + std::to_string(number) +
              " is not executed");
    }
  }

  // ---- operands
  Operand vector(unsigned number, Type type, bool accumulator = false) {
    Operand made;
    made.kind = Operand::Kind::kVector;
    made.type = type;
    made.dwords = static_cast<std::uint8_t>(dwords_of(type));
    made.index = static_cast<std::uint16_t>(number + (accumulator ? kAccumulators : 0));
    return made;
  }
  Operand scalar_register(unsigned number, Type type) {
    Operand made;
    made.kind = Operand::Kind::kScalar;
    made.type = type;
    made.dwords = static_cast<std::uint8_t>(dwords_of(type));
    made.index = static_cast<std::uint16_t>(number);
    if (number == 125 || number > 127) unknown("operand " + std::to_string(number) + " as a scalar register");
    return made;
  }
  Operand constant(std::uint64_t value, Type type) {
    Operand made;
    made.kind = Operand::Kind::kConstant;
    made.type = type;
    made.dwords = static_cast<std::uint8_t>(dwords_of(type));
    made.constant = value;
    return made;
  }

  Operand source(unsigned number, Type type, bool accumulator = false) {
    if (type == Type::kNone) return {};
    if (number >= kFirstVector) return vector(number - kFirstVector, type, accumulator);
    if (number <= 127) return scalar_register(number, type);
    const bool wide = type == Type::kB64 || type == Type::kF64 || type == Type::kMask;
    if (number <= 208) {
      const std::int64_t value =
          number <= 192 ? static_cast<std::int64_t>(number) - 128 : 192 - static_cast<std::int64_t>(number);
      if (wide) return constant(static_cast<std::uint64_t>(value), type);
      return constant(static_cast<std::uint32_t>(value), type);
    }
    if (number >= 240 && number <= 248) {
      static const std::uint16_t kHalves[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
      static const std::uint32_t kSingles[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000,
                                               0xc0000000, 0x40800000, 0xc0800000, 0x3e22f983};
      static const std::uint64_t kDoubles[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
                                               0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
                                               0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};
      const unsigned at = number - 240;
      if (is_half(type) || is_packed_half(type)) return constant(kHalves[at], type);
      return wide ? constant(kDoubles[at], type) : constant(kSingles[at], type);
    }
    if (number == kLiteral) {
      const std::uint32_t value = word(made_.size);
      literal_ = true;
      std::uint64_t extended = value;
      if (type == Type::kF64) extended <<= 32;
      else if (type == Type::kB64 && std::strstr(made_.form->name, "_i64") != nullptr)  // others take zeros above
        extended = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value)));
      return constant(extended, type);
    }
    if (number == kScc) {
      Operand made;
      made.kind = Operand::Kind::kScc;
      made.type = type;
      made.dwords = static_cast<std::uint8_t>(dwords_of(type));
      return made;
    }
    unknown("source operand " + std::to_string(number));
  }
  Operand destination_scalar(unsigned number, Type type) {
    return type == Type::kNone ? Operand{} : scalar_register(number, type);
  }
  void finish_literal() {
    if (literal_) made_.size += 4;
  }

  // ---- scalar
  void scalar() {
    const std::uint32_t w = made_.word0;
    if ((w >> 23) == 0x17d) {
      form(Encoding::kSop1, bits(w, 15, 8));
      made_.sources[0] = source(bits(w, 7, 0), made_.form->sources[0]);
      made_.destination = destination_scalar(bits(w, 22, 16), made_.form->destination);
    } else if ((w >> 23) == 0x17e) {
      form(Encoding::kSopc, bits(w, 22, 16));
      made_.sources[0] = source(bits(w, 7, 0), made_.form->sources[0]);
      made_.sources[1] = source(bits(w, 15, 8), made_.form->sources[1]);
    } else if ((w >> 23) == 0x17f) {
      form(Encoding::kSopp, bits(w, 22, 16));
      made_.immediate = static_cast<std::int16_t>(w & 0xffff);
      if ((made_.form->flags & kReadsVcc) != 0) made_.mask_source = scalar_register(kVcc, Type::kMask);
    } else if ((w >> 28) == 0xb) {
      form(Encoding::kSopk, bits(w, 27, 23));
      made_.immediate = static_cast<std::int16_t>(w & 0xffff);
      made_.destination = destination_scalar(bits(w, 22, 16), made_.form->destination);
      if (made_.form->sources[0] != Type::kNone)
        made_.sources[0] = scalar_register(bits(w, 22, 16), made_.form->sources[0]);
      if (bits(w, 27, 23) == 20) {  // s_setreg_imm32_b32
        made_.sources[0] = source(kLiteral, Type::kB32);
      }
    } else {
      form(Encoding::kSop2, bits(w, 29, 23));
      made_.sources[0] = source(bits(w, 7, 0), made_.form->sources[0]);
      made_.sources[1] = source(bits(w, 15, 8), made_.form->sources[1]);
      made_.destination = destination_scalar(bits(w, 22, 16), made_.form->destination);
    }
    finish_literal();
  }

  void smem() {
    const std::uint32_t w = made_.word0, x = made_.word1;
    form(Encoding::kSmem, bits(w, 25, 18));
    if (made_.form->sources[0] != Type::kNone)
      made_.sources[0] = scalar_register(bits(w, 5, 0) * 2, made_.form->sources[0]);
    made_.destination = destination_scalar(bits(w, 12, 6), made_.form->destination);
    const bool immediate = bits(w, 17, 17) != 0, in_register = bits(w, 14, 14) != 0;
    if (immediate) made_.immediate = static_cast<std::int32_t>(x << 11) >> 11;
    if (in_register) made_.sources[1] = scalar_register(bits(x, 31, 25), Type::kB32);
    else if (!immediate && made_.form->sources[0] != Type::kNone)
      made_.sources[1] = scalar_register(bits(x, 6, 0), Type::kB32);
    made_.sc0 = bits(w, 16, 16) != 0;
  }

  // ---- vector
  void mask_result(const Operand& implicit) {
    if ((made_.form->flags & (kWritesVcc | kWritesMask)) != 0) made_.mask_destination = implicit;
    if ((made_.form->flags & kReadsVcc) != 0) made_.mask_source = scalar_register(kVcc, Type::kMask);
  }

  void sub_dword(unsigned number) {
    const std::uint32_t extra = word(4);
    made_.size = 8;
    if (number == kDpp) {
      made_.dpp = true;
      made_.sources[0] = vector(bits(extra, 7, 0), made_.form->sources[0]);
      made_.dpp_control = static_cast<std::uint16_t>(bits(extra, 16, 8));
      made_.dpp_bound = bits(extra, 19, 19) != 0;
      made_.sources[0].negate = bits(extra, 20, 20) != 0;
      made_.sources[0].absolute = bits(extra, 21, 21) != 0;
      made_.sources[1].negate = bits(extra, 22, 22) != 0;
      made_.sources[1].absolute = bits(extra, 23, 23) != 0;
      made_.dpp_bank_mask = static_cast<std::uint8_t>(bits(extra, 27, 24));
      made_.dpp_row_mask = static_cast<std::uint8_t>(bits(extra, 31, 28));
      return;
    }
    made_.sdwa = true;
    const auto operand = [&](unsigned low, unsigned from_scalar, unsigned value, Type type) {
      Operand made = source(from_scalar != 0 ? value : value + kFirstVector, type);
      made.select = static_cast<std::uint8_t>(bits(extra, low + 2, low));
      made.extend = bits(extra, low + 3, low + 3) != 0;
      made.negate = bits(extra, low + 4, low + 4) != 0;
      made.absolute = bits(extra, low + 5, low + 5) != 0;
      if (made.select > 6) unknown("an SDWA selection that does not exist");
      return made;
    };
    made_.sources[0] = operand(16, bits(extra, 23, 23), bits(extra, 7, 0), made_.form->sources[0]);
    if (made_.form->sources[1] != Type::kNone && made_.encoding != Encoding::kVop1) {
      made_.sources[1] = operand(24, bits(extra, 31, 31), bits(made_.word0, 16, 9), made_.form->sources[1]);
    }
    if (made_.encoding == Encoding::kVopc) {
      if (bits(extra, 15, 15) != 0) made_.mask_destination = scalar_register(bits(extra, 14, 8), Type::kMask);
      return;
    }
    made_.destination_select = static_cast<std::uint8_t>(bits(extra, 10, 8));
    made_.destination_unused = static_cast<std::uint8_t>(bits(extra, 12, 11));
    if (made_.destination_select > 6 || made_.destination_unused > 2) unknown("an SDWA result that does not exist");
    made_.clamp = bits(extra, 13, 13) != 0;
    made_.output_modifier = static_cast<std::uint8_t>(bits(extra, 15, 14));
  }

  void vop1() {
    const std::uint32_t w = made_.word0;
    form(Encoding::kVop1, bits(w, 16, 9));
    result(bits(w, 24, 17));
    if (made_.form->number == 82) {  // v_accvgpr_mov_b32
      made_.destination.index += kAccumulators;
      accumulators_ = true;
    }
    if ((made_.form->flags & kWritesMask) != 0) {  // v_readfirstlane: a scalar
      made_.mask_destination = scalar_register(bits(w, 24, 17), made_.form->destination);
    }
    const unsigned first = bits(w, 8, 0);
    if (first == kSdwa || first == kDpp) sub_dword(first);
    else made_.sources[0] = source(first, made_.form->sources[0], accumulators_);
    finish_literal();
  }

  void result(unsigned number) {
    const Type type = made_.form->destination;
    if (type == Type::kNone) return;
    if ((made_.form->flags & kWritesMask) != 0) return;
    made_.destination = vector(number, type);
  }

  void vop2() {
    const std::uint32_t w = made_.word0;
    form(Encoding::kVop2, bits(w, 30, 25));
    result(bits(w, 24, 17));
    mask_result(scalar_register(kVcc, Type::kMask));
    const unsigned first = bits(w, 8, 0);
    made_.sources[1] = vector(bits(w, 16, 9), made_.form->sources[1]);
    if (first == kSdwa || first == kDpp) {
      sub_dword(first);
      return;
    }
    made_.sources[0] = source(first, made_.form->sources[0]);
    const unsigned number = made_.form->number;
    if (number == 23 || number == 36) {  // v_fmamk: D = S0 * K + S1
      made_.sources[2] = made_.sources[1];
      made_.sources[1] = source(kLiteral, made_.form->sources[1]);
    } else if (number == 24 || number == 37) {  // v_fmaak: D = S0 * S1 + K
      made_.sources[2] = source(kLiteral, made_.form->sources[2]);
    }
    finish_literal();
  }

  void vopc() {
    const std::uint32_t w = made_.word0;
    form(Encoding::kVopc, bits(w, 24, 17));
    mask_result(scalar_register(kVcc, Type::kMask));
    const unsigned first = bits(w, 8, 0);
    made_.sources[1] = vector(bits(w, 16, 9), made_.form->sources[1]);
    if (first == kSdwa || first == kDpp) {
      sub_dword(first);
      return;
    }
    made_.sources[0] = source(first, made_.form->sources[0]);
    finish_literal();
  }

  void vop3() {
    const std::uint32_t w = made_.word0, x = made_.word1;
    if ((w >> 23) == 0x1a7) {
      vop3p();
      return;
    }
    form(Encoding::kVop3, bits(w, 25, 16));
    const Form& f = *made_.form;
    const unsigned numbers[3] = {bits(x, 8, 0), bits(x, 17, 9), bits(x, 26, 18)};
    unsigned next = 0;
    for (unsigned i = 0; i < 3; ++i) {
      if (f.sources[i] == Type::kNone) continue;
      Operand operand = source(numbers[i], f.sources[i]);
      if (operand.kind == Operand::Kind::kConstant && numbers[i] == kLiteral) unknown("a literal in VOP3");
      made_.sources[i] = operand;
      next = i + 1;
    }
    if ((f.flags & kReadsVcc) != 0) {
      if (f.encoding == Encoding::kVop3) made_.mask_source = scalar_register(kVcc, Type::kMask);  // v_div_fmas
      else made_.mask_source = source(numbers[next], Type::kMask);
      if (made_.mask_source.kind == Operand::Kind::kVector) unknown("a mask in vector registers");
    }
    const bool with_mask_result = (f.flags & (kWritesVcc | kWritesMask)) != 0;
    if (f.encoding == Encoding::kVopc) {
      made_.mask_destination = scalar_register(bits(w, 7, 0), Type::kMask);
    } else if ((f.flags & kWritesMask) != 0) {
      made_.mask_destination = scalar_register(bits(w, 7, 0), f.destination);
    } else if (f.destination != Type::kNone) {
      made_.destination = vector(bits(w, 7, 0), f.destination);
    }
    if (with_mask_result && (f.flags & kWritesVcc) != 0 && f.encoding != Encoding::kVopc) {
      made_.mask_destination = scalar_register(bits(w, 14, 8), Type::kMask);
    } else if (f.number != 563 && f.number != 564) {  // v_bitop3 has its table in the modifiers
      for (unsigned i = 0; i < 3; ++i) made_.sources[i].absolute = bits(w, 8 + i, 8 + i) != 0;
    }
    made_.clamp = bits(w, 15, 15) != 0;
    if (f.encoding == Encoding::kVop3 && (f.number == 563 || f.number == 564)) {
      made_.immediate = static_cast<std::int32_t>(bits(x, 28, 27) << 6 | bits(w, 10, 8) << 3 | bits(x, 31, 29));
    } else {
      made_.output_modifier = static_cast<std::uint8_t>(bits(x, 28, 27));
      for (unsigned i = 0; i < 3; ++i) made_.sources[i].negate = bits(x, 29 + i, 29 + i) != 0;
    }
    if (!(with_mask_result && f.encoding != Encoding::kVopc)) {
      for (unsigned i = 0; i < 3; ++i) made_.sources[i].high = bits(w, 11 + i, 11 + i) != 0;
      made_.destination.high = bits(w, 14, 14) != 0;
    }
  }

  void vop3p() {
    const std::uint32_t w = made_.word0, x = made_.word1;
    const unsigned number = bits(w, 22, 16);
    if (number == 44) {  // scales, in front of the instruction that they belong to
      const std::uint32_t w2 = word(8), x2 = word(12);
      const unsigned matrix = bits(w2, 22, 16);
      if ((w2 >> 23) != 0x1a7 || (matrix != 45 && matrix != 46)) unknown("scales without a matrix instruction");
      mfma(w2, x2, matrix);
      made_.scaled = true;
      // Modifiers of C; A and B have none.
      if (bits(w, 9, 8) != 0 || bits(x, 30, 29) != 0) unknown("a modifier of a matrix operand with scales");
      made_.sources[2].absolute = bits(w, 10, 10) != 0;
      made_.sources[2].negate = bits(x, 31, 31) != 0;
      for (unsigned i = 0; i < 2; ++i) {
        made_.scales[i] = source(i == 0 ? bits(x, 8, 0) : bits(x, 17, 9), Type::kB32);
        made_.scale_bytes[i] = static_cast<std::uint8_t>(bits(w, 11 + i, 11 + i) | bits(x, 27 + i, 27 + i) << 1);
      }
      made_.size = 16;
      return;
    }
    if (find_form(Encoding::kMfma, number) != nullptr) {
      mfma(w, x, number);
      return;
    }
    form(Encoding::kVop3p, number);
    const Form& f = *made_.form;
    made_.destination = vector(bits(w, 7, 0), f.destination);
    for (unsigned i = 0; i < 3; ++i) {
      if (f.sources[i] == Type::kNone) continue;
      const unsigned value = i == 0 ? bits(x, 8, 0) : i == 1 ? bits(x, 17, 9) : bits(x, 26, 18);
      made_.sources[i] = source(value, f.sources[i]);
      Operand& operand = made_.sources[i];
      operand.high = bits(w, 11 + i, 11 + i) != 0;
      operand.high_for_high = i < 2 ? bits(x, 27 + i, 27 + i) != 0 : bits(w, 14, 14) != 0;
      operand.negate = bits(x, 29 + i, 29 + i) != 0;
      operand.negate_high = bits(w, 8 + i, 8 + i) != 0;
    }
    made_.clamp = bits(w, 15, 15) != 0;
  }

  void mfma(std::uint32_t w, std::uint32_t x, unsigned number) {
    form(Encoding::kMfma, number);
    const Form& f = *made_.form;
    made_.broadcast_size = static_cast<std::uint8_t>(bits(w, 10, 8));
    made_.broadcast_id = static_cast<std::uint8_t>(bits(w, 14, 11));
    made_.b_layout = static_cast<std::uint8_t>(bits(x, 31, 29));
    const bool acc_d = bits(w, 15, 15) != 0;
    const bool acc_a = bits(x, 27, 27) != 0, acc_b = bits(x, 28, 28) != 0;
    if (f.sources[1] == Type::kNone) {  // v_accvgpr_read, v_accvgpr_write
      made_.destination = vector(bits(w, 7, 0), f.destination, f.number == 89);
      // Bit 27, of other matrix instructions an accumulator, is set by LLVM for sources of every kind.
      made_.sources[0] = source(bits(x, 8, 0), f.sources[0], f.number == 88);
      return;
    }
    Type a = f.sources[0], b = f.sources[1];
    if (number == 45 || number == 46) {
      const auto width = [&](unsigned format) {
        switch (format) {
          case 0: case 1: return Type::kB256;
          case 2: case 3: return Type::kB192;
          case 4: return Type::kB128;
          default: unknown("matrix format " + std::to_string(format));
        }
      };
      a = width(made_.broadcast_size);
      b = width(made_.b_layout);
    }
    made_.destination = vector(bits(w, 7, 0), f.destination, acc_d);
    made_.sources[0] = source(bits(x, 8, 0), a, acc_a);
    made_.sources[1] = source(bits(x, 17, 9), b, acc_b);
    made_.sources[2] = source(bits(x, 26, 18), f.sources[2] == Type::kF32 ? Type::kF32 : f.sources[2], acc_d);
    const auto dwords = static_cast<std::uint8_t>(f.flags >> 24);
    made_.destination.dwords = dwords;
    made_.sources[2].dwords = dwords;
    for (unsigned i = 0; i < 2; ++i) {
      if (made_.sources[i].kind != Operand::Kind::kVector) unknown("a matrix operand that is not in vector registers");
    }
  }

  // ---- memory
  void ds() {
    const std::uint32_t w = made_.word0, x = made_.word1;
    form(Encoding::kDs, bits(w, 24, 17));
    const Form& f = *made_.form;
    const bool acc = bits(w, 25, 25) != 0;
    if (bits(w, 16, 16) != 0) unknown("global data share");
    made_.offset0 = static_cast<std::uint8_t>(bits(w, 7, 0));
    made_.offset1 = static_cast<std::uint8_t>(bits(w, 15, 8));
    made_.immediate = static_cast<std::int32_t>(w & 0xffff);
    if (f.sources[0] != Type::kNone) made_.sources[0] = vector(bits(x, 7, 0), Type::kB32);
    if (f.sources[1] != Type::kNone) {
      made_.sources[1] = vector(bits(x, 15, 8), f.sources[1], acc);
      made_.sources[1].high = (f.flags & kHighHalf) != 0;
    }
    if (f.sources[2] != Type::kNone) made_.sources[2] = vector(bits(x, 23, 16), f.sources[2], acc);
    if (f.destination != Type::kNone) made_.destination = vector(bits(x, 31, 24), f.destination, acc);
  }

  void flat() {
    const std::uint32_t w = made_.word0, x = made_.word1;
    static const Encoding kSegments[] = {Encoding::kFlat, Encoding::kScratch, Encoding::kGlobal};
    const unsigned segment = bits(w, 15, 14);
    if (segment > 2) unknown("FLAT segment 3");
    form(kSegments[segment], bits(w, 24, 18));
    const Form& f = *made_.form;
    made_.immediate = static_cast<std::int32_t>(w << 19) >> 19;
    made_.sc0 = bits(w, 16, 16) != 0;
    made_.nt = bits(w, 17, 17) != 0;
    made_.sc1 = bits(w, 25, 25) != 0;
    const bool acc = bits(x, 23, 23) != 0;
    const unsigned saddr = bits(x, 22, 16);
    const bool has_saddr = segment != 0 && saddr != 127;
    if (segment == 1) {
      if (bits(w, 13, 13) != 0) made_.sources[0] = vector(bits(x, 7, 0), Type::kB32);
      if (has_saddr) made_.mask_source = scalar_register(saddr, Type::kB32);
    } else {
      made_.sources[0] = vector(bits(x, 7, 0), has_saddr ? Type::kB32 : Type::kB64);
      if (has_saddr) made_.mask_source = scalar_register(saddr, Type::kB64);
    }
    if (f.sources[1] != Type::kNone) {
      made_.sources[1] = vector(bits(x, 15, 8), f.sources[1], acc);
      made_.sources[1].high = (f.flags & kHighHalf) != 0;
    }
    made_.to_lds = (f.flags & kToLds) != 0;
    const bool returns = f.destination != Type::kNone && !(f.sources[1] != Type::kNone && !made_.sc0);
    if (returns) made_.destination = vector(bits(x, 31, 24), f.destination, acc);
  }

  void mubuf() {
    const std::uint32_t w = made_.word0, x = made_.word1;
    form(Encoding::kMubuf, bits(w, 24, 18));
    const Form& f = *made_.form;
    made_.immediate = static_cast<std::int32_t>(bits(w, 11, 0));
    made_.offset_enable = bits(w, 12, 12) != 0;
    made_.index_enable = bits(w, 13, 13) != 0;
    made_.sc0 = bits(w, 14, 14) != 0;
    made_.sc1 = bits(w, 15, 15) != 0;
    made_.to_lds = bits(w, 16, 16) != 0;
    made_.nt = bits(w, 17, 17) != 0;
    if ((f.flags & kCacheControl) != 0) return;  // cache control: no operands
    const bool acc = bits(x, 23, 23) != 0;
    if (made_.offset_enable || made_.index_enable) {
      made_.sources[0] = vector(bits(x, 7, 0), made_.offset_enable && made_.index_enable ? Type::kB64 : Type::kB32);
    }
    made_.mask_source = scalar_register(bits(x, 20, 16) * 4, Type::kB128);
    made_.sources[2] = source(bits(x, 31, 24), Type::kB32);
    const bool loads = f.destination != Type::kNone, takes_data = f.sources[1] != Type::kNone;
    if (takes_data) {
      made_.sources[1] = vector(bits(x, 15, 8), f.sources[1], acc);
      made_.sources[1].high = (f.flags & kHighHalf) != 0;
    }
    if (loads && !made_.to_lds && (!takes_data || made_.sc0))
      made_.destination = vector(bits(x, 15, 8), f.destination, acc);
  }

  // ---- what is read and written
  void reads(Operand operand) {
    if (operand.type == Type::kPkF32 && (operand.high == operand.high_for_high || made_.form->number == 51)) {
      operand.index = static_cast<std::uint16_t>(operand.index + (operand.high ? 1 : 0));  // one word for both results
      operand.dwords = 1;
    }
    if (operand.kind == Operand::Kind::kVector) {
      if (operand.dwords > 0) made_.vector_reads[made_.num_vector_reads++] = {operand.index, operand.dwords};
    } else if (operand.kind == Operand::Kind::kScalar) {
      made_.scalar_reads[made_.num_scalar_reads++] = {operand.index, operand.dwords};
    }
  }
  void writes(const Operand& operand) {
    if (operand.kind == Operand::Kind::kVector) {
      made_.vector_writes[made_.num_vector_writes++] = {operand.index, operand.dwords};
    } else if (operand.kind == Operand::Kind::kScalar) {
      made_.scalar_writes[made_.num_scalar_writes++] = {operand.index, operand.dwords};
    }
  }
  bool is_modified(const Operand& operand) const {
    if (operand.kind == Operand::Kind::kNone) return false;
    const bool signs = operand.negate || operand.absolute || operand.negate_high;
    const bool chooses = made_.form->encoding == Encoding::kVop2 && made_.form->number == 0;  // v_cndmask_b32
    switch (operand.type) {
      case Type::kF32: case Type::kF64: return signs || (made_.sdwa && (operand.select != 6 || operand.extend));
      case Type::kF16: case Type::kB16: return signs || operand.high || made_.sdwa;
      case Type::kPkF16: case Type::kPkB16: case Type::kPkF32:
        return signs || operand.high || !operand.high_for_high;
      default: return (chooses && signs) || (made_.sdwa && (operand.select != 6 || operand.extend));
    }
  }
  bool is_mixed_product() const {  // v_mad_mix, which takes signs itself
    return made_.form->encoding == Encoding::kVop3p && made_.form->number >= 32 && made_.form->number <= 34;
  }
  void collect() {
    for (Operand& operand : made_.sources) {
      operand.modified = is_modified(operand);
      if (!operand.modified && (operand.negate || operand.absolute || operand.negate_high) && !is_mixed_product()) {
        unknown("a sign of a source that has none");
      }
      if (operand.type == Type::kPkF32 && operand.kind == Operand::Kind::kConstant && operand.high_for_high &&
          operand.constant != 0 && made_.form->number != 51) {  // of 0 both words are 0
        unknown("the high word of a constant as a packed operand");
      }
    }
    const Type result = made_.form->destination;
    const bool is_float = result == Type::kF32 || result == Type::kF16 || result == Type::kF64 ||
                          result == Type::kPkF16 || result == Type::kPkF32;
    if (made_.clamp && !is_float && (made_.form->flags & kSaturates) == 0 && made_.form->function != nullptr &&
        made_.encoding != Encoding::kMfma) {
      unknown("clamp");
    }
    for (const Operand& operand : made_.sources) reads(operand);
    for (const Operand& operand : made_.scales) reads(operand);
    reads(made_.mask_source);
    for (unsigned i = 0; made_.form->function != nullptr && i < made_.sources.size(); ++i) {
      if (made_.form->sources[i] != Type::kNone && made_.sources[i].kind == Operand::Kind::kNone)
        unknown("an operand that this encoding does not have");
    }
    const std::uint32_t flags = made_.form->flags;
    if ((flags & kReadsDestination) != 0) reads(made_.destination);
    writes(made_.destination);
    writes(made_.mask_destination);
    const auto limit = [&](const Range& range) {
      const unsigned end = range.first + range.count;
      if ((range.first < kAccumulators && end > kAccumulators) || end > 2 * kAccumulators) {
        unknown("a register that does not exist");
      }
    };
    for (unsigned i = 0; i < made_.num_vector_reads; ++i) limit(made_.vector_reads[i]);
    for (unsigned i = 0; i < made_.num_vector_writes; ++i) limit(made_.vector_writes[i]);
    const auto limit_scalar = [&](const Range& range) {
      if (unsigned{range.first} + range.count > kScalars) unknown("a scalar register that does not exist");
    };
    for (unsigned i = 0; i < made_.num_scalar_reads; ++i) limit_scalar(made_.scalar_reads[i]);
    for (unsigned i = 0; i < made_.num_scalar_writes; ++i) limit_scalar(made_.scalar_writes[i]);
  }

  const std::vector<std::uint8_t>& text_;
  std::uint32_t offset_;
  Instruction made_;
  bool literal_ = false, accumulators_ = false;
};

bool ends_path(const Instruction& instruction) {
  const std::string name = instruction.form->name;
  return name == "s_endpgm" || name == "s_branch" || name == "s_setpc_b64";
}

}  // namespace

Instruction decode(const std::vector<std::uint8_t>& text, std::uint32_t offset) {
  return Decoder(text, offset).decode();
}

Program decode_kernel(const CodeObject& object, const KernelImage& kernel) {
  Program made;
  std::string problems;
  unsigned num_problems = 0;
  bool calls = false;
  const auto decode_range = [&](std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t at = begin; at < end;) {
      try {
        Instruction instruction = decode(object.text, at);
        instruction.hazards = hazards_of(instruction);
        made.index_of[at] = static_cast<std::uint32_t>(made.instructions.size());
        made.instructions.push_back(instruction);
        at += instruction.size;
        const std::string name = instruction.form->name;
        calls = calls || name == "s_swappc_b64" || name == "s_setpc_b64";
      } catch (const Unsupported& unsupported) {
        if (++num_problems <= 8) problems += std::string("\n  ") + unsupported.what();
        at += 4;
      }
    }
  };
  std::uint32_t end = kernel.entry + kernel.bytes;
  if (kernel.bytes == 0) end = static_cast<std::uint32_t>(object.text.size());
  decode_range(kernel.entry, end);
  if (calls) {
    for (const auto& function : object.functions) {
      if (function.offset >= kernel.entry && function.offset < end) continue;
      decode_range(function.offset, function.offset + function.bytes);
    }
  }
  if (num_problems > 0) {
    throw Unsupported("kernel " + kernel.name + ": " + std::to_string(num_problems) +
                      " instructions that are not executed:" + problems + (num_problems > 8 ? "\n  ..." : ""));
  }
  for (Instruction& instruction : made.instructions) {
    if ((instruction.form->flags & kBranch) == 0) continue;
    const std::uint32_t target = instruction.address + 4 + static_cast<std::uint32_t>(instruction.immediate * 4);
    const auto found = made.index_of.find(target);
    if (found == made.index_of.end()) {
      throw Unsupported("kernel " + kernel.name + ": at " + hex(instruction.address) + ": a branch to " + hex(target) +
                        ", where no instruction starts");
    }
    instruction.target = found->second;
  }
  if (made.instructions.empty() || !ends_path(made.instructions.back())) {
    // The last instruction of padding after the end is harmless; one that runs on is not.
    Instruction stop;
    stop.form = find_form(Encoding::kSopp, 18);
    stop.handler = stop.form->handler;
    stop.encoding = Encoding::kSopp;
    stop.address = end;
    made.instructions.push_back(stop);
  }
  return made;
}

}  // namespace msa_ops::emulator::gfx950
