// Instructions in which the lanes of a warp see each other.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "lanes.hpp"
#include "numbers.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// Calls function(group) for the lanes of each member mask that occurs. A lane must be in its own mask, and all other
// live lanes of the mask must be here with the same mask.
template <typename Function>
void for_groups(PtxWarp& warp, const Operand& member_mask, Mask lanes, Function function) {
  const auto* masks = warp.row<Mask>(member_mask);
  for (Mask rest = lanes; rest != 0;) {
    const int first = __builtin_ctz(rest);
    const Mask mask = masks[first];
    Mask group = 0;
    for_lanes(rest, [&](unsigned lane) { group |= static_cast<Mask>(masks[lane] == mask) << lane; });
    rest &= ~group;
    if (const Mask strangers = group & ~mask; strangers != 0) {
      throw Violation{FaultKind::kDivergence, "the lane is not in its own member mask", __builtin_ctz(strangers)};
    }
    if (const Mask missing = mask & warp.live() & ~group; missing != 0) {
      throw Violation{FaultKind::kDivergence, "the member mask names a lane that is elsewhere", __builtin_ctz(missing)};
    }
    function(group);
  }
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

template <Shuffle mode>
void shfl(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* a = warp.row<std::uint32_t>(i.operands[2]);
  const auto* b = warp.row<std::uint32_t>(i.operands[3]);
  const auto* c = warp.row<std::uint32_t>(i.operands[4]);
  for (const unsigned operand : {3U, 4U, 5U}) warp.want_defined(i.operands[operand], lanes);
  const Mask without = warp.any_undefined() ? warp.undefined(i.operands[2]) : 0;
  std::uint32_t values[kLanes];
  Mask in_range = 0, undefined = 0;
  for_groups(warp, i.operands[5], lanes, [&](Mask group) {
    for_lanes(group, [&](unsigned lane) {
      const unsigned distance = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
      const unsigned most = (lane & segment) | (clamp & ~segment & 31);
      const unsigned least = lane & segment;
      int source = 0;
      bool valid = false;
      switch (mode) {
        case Shuffle::kUp:
          source = static_cast<int>(lane) - static_cast<int>(distance);
          valid = source >= static_cast<int>(most);
          break;
        case Shuffle::kDown: source = static_cast<int>(lane + distance); break;
        case Shuffle::kButterfly: source = static_cast<int>(lane ^ distance); break;
        case Shuffle::kIndex: source = static_cast<int>(least | (distance & ~segment & 31)); break;
      }
      if (mode != Shuffle::kUp) valid = source <= static_cast<int>(most);
      if (!valid) source = static_cast<int>(lane);
      in_range |= static_cast<Mask>(valid) << lane;
      undefined |= ((~group | without) >> source & 1) << lane;  // what a lane that takes no part holds is not defined
      values[lane] = a[source];
    });
  });
  auto* out = warp.out<std::uint32_t>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane]; });
  if (i.operands[1].present) warp.set_predicate(i.operands[1], in_range, lanes);
  warp.leave_undefined(i.operands[0], undefined);
}

enum class Vote { kAll, kAny, kUniform };

template <Vote mode>
void vote(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Mask votes = warp.predicate(i.operands[1]);
  Mask result = 0;
  for_groups(warp, i.operands[2], lanes, [&](Mask group) {
    const bool all = (votes & group) == group, none = (votes & group) == 0;
    if (mode == Vote::kAll ? all : mode == Vote::kAny ? !none : all || none) result |= group;
  });
  warp.set_predicate(i.operands[0], result, lanes);
}

void ballot(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Mask votes = warp.predicate(i.operands[1]);
  Mask values[kLanes];
  for_groups(warp, i.operands[2], lanes, [&](Mask group) {
    for_lanes(group, [&](unsigned lane) { values[lane] = votes & group; });
  });
  auto* out = warp.out<Mask>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane]; });
}

template <typename T>
void match_any(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* a = warp.row<T>(i.operands[1]);
  Mask values[kLanes];
  for_groups(warp, i.operands[2], lanes, [&](Mask group) {
    for_lanes(group, [&](unsigned lane) {
      values[lane] = 0;
      for_lanes(group, [&](unsigned other) { values[lane] |= static_cast<Mask>(a[other] == a[lane]) << other; });
    });
  });
  auto* out = warp.out<Mask>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane]; });
}

// The whole group if its values are equal, else nothing; the predicate says which.
template <typename T>
void match_all(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* a = warp.row<T>(i.operands[2]);
  Mask values[kLanes], equal = 0;
  for_groups(warp, i.operands[3], lanes, [&](Mask group) {
    const T first = a[__builtin_ctz(group)];
    bool same = true;
    for_lanes(group, [&](unsigned lane) { same = same && a[lane] == first; });
    if (same) equal |= group;
    for_lanes(group, [&](unsigned lane) { values[lane] = same ? group : 0; });
  });
  auto* out = warp.out<Mask>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane]; });
  if (i.operands[1].present) warp.set_predicate(i.operands[1], equal, lanes);
}

// The lowest lane of the group, as the hardware chooses; PTX only promises that it is one and always the same.
void elect(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<std::uint32_t>(i.operands[0]);
  Mask leaders = 0;
  std::uint32_t values[kLanes];
  for_groups(warp, i.operands[2], lanes, [&](Mask group) {
    const auto leader = static_cast<unsigned>(__builtin_ctz(group));
    leaders |= Mask{1} << leader;
    for_lanes(group, [&](unsigned lane) { values[lane] = leader; });
  });
  for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane]; });
  if (i.operands[1].present) warp.set_predicate(i.operands[1], leaders, lanes);
}

void activemask(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<Mask>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = lanes; });
}

template <typename T>
T add(T a, T b) { return a + b; }
template <typename T>
T least(T a, T b) { return std::min(a, b); }
template <typename T>
T greatest(T a, T b) { return std::max(a, b); }
template <typename T>
T bit_and(T a, T b) { return a & b; }
template <typename T>
T bit_or(T a, T b) { return a | b; }
template <typename T>
T bit_xor(T a, T b) { return a ^ b; }

template <typename T>
T same(T a) { return a; }
inline float magnitude(float a) { return std::fabs(a); }

template <typename T, T (*function)(T, T), T (*prepare)(T) = same<T>>
void redux(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const T* a = warp.row<T>(i.operands[1]);
  warp.want_defined(i.operands[2], lanes);
  const Mask without = warp.any_undefined() ? warp.undefined(i.operands[1]) : 0;
  T values[kLanes];
  Mask undefined = 0;
  for_groups(warp, i.operands[2], lanes, [&](Mask group) {
    if ((without & group) != 0) undefined |= group;  // one value that is missing leaves all without
    const auto first = static_cast<unsigned>(__builtin_ctz(group));
    T total = prepare(a[first]);
    if constexpr (std::is_floating_point_v<T>) total = function(total, total);  // the one NaN
    for_lanes(group & (group - 1), [&](unsigned lane) { total = function(total, prepare(a[lane])); });
    for_lanes(group, [&](unsigned lane) { values[lane] = total; });
  });
  T* out = warp.out<T>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane]; });
  warp.leave_undefined(i.operands[0], undefined);
}

template <bool nan>
void add_float_redux(Forms& forms, const std::string& tail) {
  using F = float;
  forms.push_back({"redux.sync.min" + tail + ".f32", "=4 4 4", redux<F, lesser<nan>>});
  forms.push_back({"redux.sync.max" + tail + ".f32", "=4 4 4", redux<F, greater<nan>>});
  forms.push_back({"redux.sync.min.abs" + tail + ".f32", "=4 4 4", redux<F, lesser<nan>, magnitude>});
  forms.push_back({"redux.sync.max.abs" + tail + ".f32", "=4 4 4", redux<F, greater<nan>, magnitude>});
}

void warp_sync(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_groups(warp, i.operands[0], lanes, [](Mask) {});
}

}  // namespace

void add_warp_forms(Forms& forms) {
  using U = std::uint32_t;
  using S = std::int32_t;
  forms.push_back({"shfl.sync.up.b32", "=4|p? 4 4 4 4", shfl<Shuffle::kUp>});
  forms.push_back({"shfl.sync.down.b32", "=4|p? 4 4 4 4", shfl<Shuffle::kDown>});
  forms.push_back({"shfl.sync.bfly.b32", "=4|p? 4 4 4 4", shfl<Shuffle::kButterfly>});
  forms.push_back({"shfl.sync.idx.b32", "=4|p? 4 4 4 4", shfl<Shuffle::kIndex>});
  forms.push_back({"vote.sync.all.pred", "=p p 4", vote<Vote::kAll>});
  forms.push_back({"vote.sync.any.pred", "=p p 4", vote<Vote::kAny>});
  forms.push_back({"vote.sync.uni.pred", "=p p 4", vote<Vote::kUniform>});
  forms.push_back({"vote.sync.ballot.b32", "=4 p 4", ballot});
  forms.push_back({"match.any.sync.b32", "=4 4 4", match_any<U>});
  forms.push_back({"match.any.sync.b64", "=4 8 4", match_any<std::uint64_t>});
  forms.push_back({"match.all.sync.b32", "=4|p? 4 4", match_all<U>});
  forms.push_back({"match.all.sync.b64", "=4|p? 8 4", match_all<std::uint64_t>});
  forms.push_back({"elect.sync", "=4|p? 4", elect});
  forms.push_back({"activemask.b32", "=4", activemask});
  forms.push_back({"redux.sync.add.u32", "=4 4 4", redux<U, add<U>>});
  forms.push_back({"redux.sync.add.s32", "=4 4 4", redux<U, add<U>>});
  forms.push_back({"redux.sync.min.u32", "=4 4 4", redux<U, least<U>>});
  forms.push_back({"redux.sync.min.s32", "=4 4 4", redux<S, least<S>>});
  forms.push_back({"redux.sync.max.u32", "=4 4 4", redux<U, greatest<U>>});
  forms.push_back({"redux.sync.max.s32", "=4 4 4", redux<S, greatest<S>>});
  add_float_redux<false>(forms, "");
  add_float_redux<true>(forms, ".NaN");
  forms.push_back({"redux.sync.and.b32", "=4 4 4", redux<U, bit_and<U>>});
  forms.push_back({"redux.sync.or.b32", "=4 4 4", redux<U, bit_or<U>>});
  forms.push_back({"redux.sync.xor.b32", "=4 4 4", redux<U, bit_xor<U>>});
  forms.push_back({"bar.warp.sync", "4", warp_sync});
  for (Form& form : forms) {
    const std::string kind = form.opcode.substr(0, 5);
    if (kind == "shfl." || kind == "redux") form.undefined = Form::Undefined::kHandled;
  }
}

}  // namespace msa_ops::emulator::ptx
