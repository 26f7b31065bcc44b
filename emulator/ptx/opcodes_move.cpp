// Moves, also between a register and its parts.
#include <algorithm>
#include <initializer_list>
#include <string>

#include "addresses.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

template <typename T>
T same(T value) { return value; }

template <typename Whole, typename Part>
void pack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  constexpr unsigned count = sizeof(Whole) / sizeof(Part);
  Whole* out = warp.out<Whole>(i.operands[0]);
  if (count == 2 && warp.any_undefined()) {
    warp.note_halves(i.operands[0], warp.undefined(i.operands[1]), warp.undefined(i.operands[2]), lanes);
  }
  const Part* parts[count];
  for (unsigned part = 0; part < count; ++part) parts[part] = warp.row<Part>(i.operands[1 + part]);
  for_independent_lanes(lanes, [&](unsigned lane) {
    Whole value = 0;
    for (unsigned part = 0; part < count; ++part) {
      value |= static_cast<Whole>(parts[part][lane]) << (8 * sizeof(Part) * part);
    }
    out[lane] = value;
  });
}

template <typename Whole, typename Part>
void unpack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  constexpr unsigned count = sizeof(Whole) / sizeof(Part);
  const Whole* in = warp.row<Whole>(i.operands[count]);
  if (warp.any_undefined()) {
    for (unsigned part = 0; part < count; ++part) {
      const Operand& whole = i.operands[count];
      if (i.operands[part].present) {
        warp.leave_undefined(i.operands[part], lanes & (count == 2 ? warp.undefined_half(whole, part) : warp.undefined(whole)));
      }
    }
  }
  Part* parts[count];
  for (unsigned part = 0; part < count; ++part) parts[part] = warp.out<Part>(i.operands[part]);
  for_independent_lanes(lanes, [&](unsigned lane) {
    const Whole value = in[lane];
    for (unsigned part = 0; part < count; ++part) {
      parts[part][lane] = static_cast<Part>(value >> (8 * sizeof(Part) * part));
    }
  });
}

// A vector of registers into another one; each element by itself.
template <typename T, unsigned count>
void move_vector(PtxWarp& warp, const Instruction& i, Mask lanes) {
  T values[count][kLanes];
  for (unsigned element = 0; element < count; ++element) {
    std::copy_n(warp.row<T>(i.operands[count + element]), kLanes, values[element]);
    warp.leave_undefined(i.operands[element], lanes & warp.undefined(i.operands[count + element]));
  }
  for (unsigned element = 0; element < count; ++element) {
    T* out = warp.out<T>(i.operands[element]);
    for_lanes(lanes, [&](unsigned lane) { out[lane] = values[element][lane]; });
  }
}

template <typename T, unsigned count>
void add_vector_moves(Forms& forms, std::initializer_list<const char*> types) {
  const std::string vector = std::to_string(sizeof(T)) + "*" + std::to_string(count);
  for (const char* type : types) {
    forms.push_back({"mov.v" + std::to_string(count) + "." + type + " unpack" + std::to_string(count),
                     "=" + vector + " " + vector, move_vector<T, count>});
    forms.back().undefined = Form::Undefined::kHandled;
  }
}

template <std::uint64_t window>
std::uint64_t to_generic(std::uint64_t address) { return window + (address & 0xffffffffU); }
template <std::uint64_t window>
std::uint64_t from_generic(std::uint64_t address) { return address - window; }

void constant_to_generic(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* in = warp.row<std::uint64_t>(i.operands[1]);
  auto* out = warp.out<std::uint64_t>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = warp.kernel().constant_address(in[lane]); });
}

// Constants and parameters have generic addresses among those of global memory, of which only the constants do not count.
MemorySpace read_only_space(const Kernel& kernel, std::uint64_t address) {
  const auto parameters = reinterpret_cast<std::uint64_t>(kernel.parameter_bytes().data());
  if (address - parameters < kernel.parameter_bytes().count) return MemorySpace::kParameter;
  for (const Allocation& variable : kernel.variables()) {
    if (!variable.writable && address - variable.address < variable.bytes) return MemorySpace::kConstant;
  }
  return MemorySpace::kGlobal;
}

template <MemorySpace wanted>
void is_space(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Mask result = 0;
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t address = warp.value(i.operands[1], lane);
    MemorySpace space = space_of(address);
    if (space == MemorySpace::kGlobal) space = read_only_space(warp.kernel(), address);
    if (wanted == MemorySpace::kShared && space == MemorySpace::kCluster) {
      space = warp.block().shared().holds(address) ? MemorySpace::kShared : MemorySpace::kCluster;
    }
    const bool global = wanted == MemorySpace::kGlobal && space == MemorySpace::kParameter;
    result |= static_cast<Mask>(space == wanted || global) << lane;
  });
  warp.set_predicate(i.operands[0], result, lanes);
}

}  // namespace

void add_move_forms(Forms& forms) {
  for (const std::string type : {"b16", "u16", "s16"}) {
    forms.push_back({"mov." + type, "=2 2", unary<std::uint16_t, std::uint16_t, same<std::uint16_t>>});
  }
  for (const std::string type : {"b32", "u32", "s32", "f32"}) {
    forms.push_back({"mov." + type, "=4 4", unary<std::uint32_t, std::uint32_t, same<std::uint32_t>>});
  }
  for (const std::string type : {"b64", "u64", "s64", "f64"}) {
    forms.push_back({"mov." + type, "=8 8", unary<std::uint64_t, std::uint64_t, same<std::uint64_t>>});
  }
  forms.push_back({"mov.b32 pack2", "=4 2,2", pack<std::uint32_t, std::uint16_t>});
  forms.push_back({"mov.b32 unpack2", "=2,2 4", unpack<std::uint32_t, std::uint16_t>});
  forms.back().undefined = Form::Undefined::kHandled;
  forms.push_back({"mov.b16 pack2", "=2 1,1", pack<std::uint16_t, std::uint8_t>});
  forms.push_back({"mov.b16 unpack2", "=1,1 2", unpack<std::uint16_t, std::uint8_t>});
  forms.back().undefined = Form::Undefined::kHandled;
  forms.push_back({"mov.b32 pack4", "=4 1,1,1,1", pack<std::uint32_t, std::uint8_t>});
  forms.push_back({"mov.b32 unpack4", "=1,1,1,1 4", unpack<std::uint32_t, std::uint8_t>});
  forms.back().undefined = Form::Undefined::kHandled;
  forms.push_back({"mov.b64 pack2", "=8 4,4", pack<std::uint64_t, std::uint32_t>});
  forms.push_back({"mov.b64 unpack2", "=4,4 8", unpack<std::uint64_t, std::uint32_t>});
  forms.back().undefined = Form::Undefined::kHandled;
  forms.push_back({"mov.b64 pack4", "=8 2,2,2,2", pack<std::uint64_t, std::uint16_t>});
  forms.push_back({"mov.b64 unpack4", "=2,2,2,2 8", unpack<std::uint64_t, std::uint16_t>});
  forms.back().undefined = Form::Undefined::kHandled;
  add_vector_moves<std::uint16_t, 2>(forms, {"b16", "u16", "s16"});
  add_vector_moves<std::uint16_t, 4>(forms, {"b16", "u16", "s16"});
  add_vector_moves<std::uint32_t, 2>(forms, {"b32", "u32", "s32", "f32"});
  add_vector_moves<std::uint32_t, 4>(forms, {"b32", "u32", "s32", "f32"});
  add_vector_moves<std::uint64_t, 2>(forms, {"b64", "u64", "s64", "f64"});
  // Generic addresses of global memory are its addresses.
  forms.push_back({"cvta.const.u64", "=8 8", constant_to_generic});
  forms.push_back({"cvta.to.const.u64", "=8 8", unary<std::uint64_t, std::uint64_t, same<std::uint64_t>>});
  for (const std::string space : {"global", "param", "param::entry"}) {
    for (const std::string direction : {"", "to."}) {
      forms.push_back({"cvta." + direction + space + ".u64", "=8 8",
                       unary<std::uint64_t, std::uint64_t, same<std::uint64_t>>});
    }
  }
  for (const std::string space : {"shared", "shared::cta", "shared::cluster"}) {
    forms.push_back({"cvta." + space + ".u64", "=8 8", unary<std::uint64_t, std::uint64_t, to_generic<kSharedWindow>>});
    forms.push_back(
        {"cvta.to." + space + ".u64", "=8 8", unary<std::uint64_t, std::uint64_t, from_generic<kSharedWindow>>});
  }
  forms.push_back({"cvta.local.u64", "=8 8", unary<std::uint64_t, std::uint64_t, to_generic<kLocalWindow>>});
  forms.push_back({"cvta.to.local.u64", "=8 8", unary<std::uint64_t, std::uint64_t, from_generic<kLocalWindow>>});
  forms.push_back({"isspacep.global", "=p 8", is_space<MemorySpace::kGlobal>});
  forms.push_back({"isspacep.const", "=p 8", is_space<MemorySpace::kConstant>});
  forms.push_back({"isspacep.param", "=p 8", is_space<MemorySpace::kParameter>});
  forms.push_back({"isspacep.param::entry", "=p 8", is_space<MemorySpace::kParameter>});
  forms.push_back({"isspacep.local", "=p 8", is_space<MemorySpace::kLocal>});
  forms.push_back({"isspacep.shared", "=p 8", is_space<MemorySpace::kShared>});
  forms.push_back({"isspacep.shared::cta", "=p 8", is_space<MemorySpace::kShared>});
  forms.push_back({"isspacep.shared::cluster", "=p 8", is_space<MemorySpace::kCluster>});
}

}  // namespace msa_ops::emulator::ptx
