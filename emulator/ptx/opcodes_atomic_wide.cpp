// Atomic operations on vectors, of which each element is atomic by itself, and on 16 bytes at once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "addresses.hpp"
#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using Quad = std::array<std::uint64_t, 2>;

// ---- elements of vectors in global memory

float add_flushed(float a, float b) { return canonical(flush(flush(a) + flush(b))); }

template <float (*wide)(std::uint16_t), std::uint16_t (*narrow)(double)>
std::uint16_t add_small(std::uint16_t a, std::uint16_t b) { return narrow(add_to_odd(wide(a), wide(b))); }

// As `min` and `max` of 16 bits: a NaN gives way to a number, and -0 is below +0.
template <float (*wide)(std::uint16_t), bool least>
std::uint16_t extreme_small(std::uint16_t a, std::uint16_t b) {
  const float x = wide(a), y = wide(b);
  if (std::isnan(x) && std::isnan(y)) return 0x7fff;
  if (std::isnan(x)) return b;
  if (std::isnan(y)) return a;
  const bool a_below = x < y || (x == y && std::signbit(x));
  return a_below == least ? a : b;
}

template <std::uint16_t (*function)(std::uint16_t, std::uint16_t)>
std::uint32_t pair(std::uint32_t a, std::uint32_t b) {
  return std::uint32_t{function(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16))} << 16 |
         function(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b));
}

// {old,} [address], values
template <typename T, T (*function)(T, T), bool returns>
void vector_atomic(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const unsigned count = i.form->count, base = returns ? count : 0;
  for (unsigned element = 0; element < count; ++element) warp.want_defined(i.operands[base + 1 + element], lanes);
  T old_values[8][kLanes];
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t address = address_of(warp, i.operands[base], lane, i.offset, i.form->memory);
    if (i.form->memory == MemorySpace::kGeneric && space_of(address) != MemorySpace::kGlobal) {
      throw Violation{FaultKind::kOutOfBounds, "an atomic operation on a vector outside of global memory",
                      static_cast<int>(lane), address};
    }
    std::byte* place = access<Use::kUpdate>(warp, i, address, sizeof(T) * count, MemorySpace::kGlobal, lane);
    const auto lock = warp.block().global().lock(address);
    for (unsigned element = 0; element < count; ++element) {
      T old;
      std::memcpy(&old, place + element * sizeof(T), sizeof(T));
      const T now = function(old, warp.row<T>(i.operands[base + 1 + element])[lane]);
      std::memcpy(place + element * sizeof(T), &now, sizeof(T));
      old_values[element][lane] = old;
    }
    warp.count_read(sizeof(T) * count);
    warp.count_written(sizeof(T) * count);
  });
  if (!returns) return;
  for (unsigned element = 0; element < count; ++element) {
    T* out = warp.out<T>(i.operands[element]);
    for_lanes(lanes, [&](unsigned lane) { out[lane] = old_values[element][lane]; });
  }
}

template <typename T, T (*function)(T, T)>
void add_vectors(Forms& forms, const std::string& operation, const std::string& type, std::initializer_list<unsigned> counts) {
  for (const unsigned count : counts) {
    const std::string tail = "." + operation + ".v" + std::to_string(count) + "." + type;
    for (const std::string space : {".global", ""}) {
      const MemorySpace memory = space.empty() ? MemorySpace::kGeneric : MemorySpace::kGlobal;
      Form form{"atom" + space + tail, "=v A v 8?", vector_atomic<T, function, true>, memory, sizeof(T),
                static_cast<std::uint8_t>(count)};
      forms.push_back(form);
      form.opcode = "red" + space + tail, form.operands = "A v 8?", form.handler = vector_atomic<T, function, false>;
      form.undefined = Form::Undefined::kHandled;
      forms.push_back(form);
    }
  }
}

template <float (*wide)(std::uint16_t), std::uint16_t (*narrow)(double)>
void add_small_vectors(Forms& forms, const std::string& type) {
  add_vectors<std::uint16_t, add_small<wide, narrow>>(forms, "add.noftz", type, {2, 4, 8});
  add_vectors<std::uint16_t, extreme_small<wide, true>>(forms, "min.noftz", type, {2, 4, 8});
  add_vectors<std::uint16_t, extreme_small<wide, false>>(forms, "max.noftz", type, {2, 4, 8});
  add_vectors<std::uint32_t, pair<add_small<wide, narrow>>>(forms, "add.noftz", type + "x2", {2, 4});
  add_vectors<std::uint32_t, pair<extreme_small<wide, true>>>(forms, "min.noftz", type + "x2", {2, 4});
  add_vectors<std::uint32_t, pair<extreme_small<wide, false>>>(forms, "max.noftz", type + "x2", {2, 4});
}

std::uint16_t to_half(double value) { return half_from<>(value); }
std::uint16_t to_brain(double value) { return bfloat_from<>(value); }

// ---- 16 bytes

// old, [address], {compare,} value
template <bool compares, MemorySpace memory>
void exchange_quad(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Quad old_values[kLanes];
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_of(warp, i.operands[1], lane, i.offset, memory);
    std::byte* place = access<Use::kUpdate>(warp, i, address, sizeof(Quad), memory, lane);
    const auto lock = warp.block().global().lock(address);
    Quad old;
    std::memcpy(&old, place, sizeof(Quad));
    old_values[lane] = old;
    if (!compares || old == warp.row<Quad>(i.operands[2])[lane]) {
      std::memcpy(place, &warp.row<Quad>(i.operands[compares ? 3 : 2])[lane], sizeof(Quad));
    }
    std::uint64_t found = address;
    if (memory == MemorySpace::kGlobal || (memory == MemorySpace::kGeneric && space_of(found) == MemorySpace::kGlobal)) {
      warp.count_read(sizeof(Quad));
      warp.count_written(sizeof(Quad));
    } else {
      for (const bool write : {false, true}) warp.count_bytes(PtxWarp::Space::kShared, write, sizeof(Quad));
    }
  });
  Quad* out = warp.out<Quad>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = old_values[lane]; });
}

}  // namespace

void add_wide_atomic_forms(Forms& forms) {
  add_vectors<float, add_flushed>(forms, "add", "f32", {2, 4});
  add_small_vectors<float_from_half, to_half>(forms, "f16");
  add_small_vectors<float_from_bfloat, to_brain>(forms, "bf16");
  forms.push_back({"atom.global.exch.b128", "=q A q 8?", exchange_quad<false, MemorySpace::kGlobal>, MemorySpace::kGlobal});
  forms.push_back({"atom.global.cas.b128", "=q A q q 8?", exchange_quad<true, MemorySpace::kGlobal>, MemorySpace::kGlobal});
  forms.push_back({"atom.exch.b128", "=q A q 8?", exchange_quad<false, MemorySpace::kGeneric>, MemorySpace::kGeneric});
  forms.push_back({"atom.cas.b128", "=q A q q 8?", exchange_quad<true, MemorySpace::kGeneric>, MemorySpace::kGeneric});
  forms.push_back({"atom.shared.exch.b128", "=q A q", exchange_quad<false, MemorySpace::kShared>, MemorySpace::kShared});
  forms.push_back({"atom.shared.cas.b128", "=q A q q", exchange_quad<true, MemorySpace::kShared>, MemorySpace::kShared});
}

}  // namespace msa_ops::emulator::ptx
