// Registers that asynchronous instructions are still using: no other instruction may touch them before a wait.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "../device/ordering.hpp"

namespace msa_ops::emulator::ptx {

class RegistersInFlight {
 public:
  enum class Use : std::uint8_t {
    kNone,
    kSum,         // wgmma reads and writes it
    kOperand,     // wgmma reads it
    kTensorLoad,  // tcgen05.ld writes it
  };
  struct State {
    Use use = Use::kNone;
    std::uint32_t owner = 0;  // for wgmma: form and place in the accumulator, equal where work may follow without a wait
    std::uint64_t group = 0;
  };

  void reset(std::size_t registers) {
    states_.assign(registers, {});
    list_.clear();
  }
  bool any() const { return !list_.empty(); }
  const State& of(std::uint32_t index) const { return states_[index]; }

  void add(std::uint32_t index, const State& state) {
    if (states_[index].use == Use::kNone) list_.push_back(index);
    states_[index] = state;
  }

  // Work of this use in groups before `group` is done.
  void land(Use use, std::uint64_t group) {
    const auto landed = [&](std::uint32_t index) {
      State& state = states_[index];
      if (state.use != use || state.group >= group) return false;
      state = {};
      return true;
    };
    list_.erase(std::remove_if(list_.begin(), list_.end(), landed), list_.end());
  }

  static bool stops_reading(Use use) { return use == Use::kSum; }

  static const char* describe(Use use) {
    switch (use) {
      case Use::kSum: return "is an accumulator of a wgmma that wgmma.wait_group has not waited for";
      case Use::kOperand: return "is an operand of a wgmma that wgmma.wait_group has not waited for";
      case Use::kTensorLoad: return "is loaded by a tcgen05.ld that tcgen05.wait::ld has not waited for";
      case Use::kNone: break;
    }
    return "";
  }

 private:
  std::vector<State> states_;
  std::vector<std::uint32_t> list_;
};

// What tcgen05 keeps of a warp: numbers of its loads and stores, and of the commits of its matrix work.
struct TensorWork {
  std::uint32_t loads = 0, stores = 0, commits = 0;
  std::uint32_t ends_with = 0;  // the first commit that covers all work so far
  unsigned lane = 0;            // that issued the last of it
  std::array<std::uint32_t, 32> of_lane{};  // ends_with when each one issued its last work: a commit covers its lane's
};

// What wgmma keeps of a warp: groups of work, and which registers were touched since the last wgmma.fence.
class WgmmaState {
 public:
  // What the four warps of a warpgroup must have in common: the instruction, and where its operands are.
  struct Product {
    std::uint32_t pc;
    std::uint64_t a, b;  // descriptors; a is 0 if it is in registers
    bool operator==(const Product& other) const { return pc == other.pc && a == other.a && b == other.b; }
  };

  void reset(std::size_t registers) {
    touched_.assign(registers, 0);
    constant_.assign(registers, 0);
    epoch_ = 0;
    group_ = 0;
    released_.clear();
    issued_ = 0;
    products_.clear();
  }
  void touch(std::uint32_t index) { touched_[index] = epoch_; }
  // A move gave it a constant. Compilers put those behind the fence that the program has after them, and ptxas, which
  // sees that they are constants, has no use for them or waits by itself; so accumulators may have them there.
  void give_constant(std::uint32_t index) { constant_[index] = epoch_ + 1; }
  void give_other(std::uint32_t index) { constant_[index] = 0; }
  bool is_constant(std::uint32_t index) const { return constant_[index] != 0; }
  // False: another instruction read or wrote it after the last wgmma.fence, or there was none.
  bool is_fenced(std::uint32_t index) const { return touched_[index] < epoch_; }
  bool is_fenced_constant(std::uint32_t index) const { return constant_[index] <= epoch_; }
  bool any_fence() const { return epoch_ > 0; }
  void fence() { ++epoch_; }
  std::uint64_t group() const { return group_; }  // that work belongs to, from 0
  // `released` is what the warp knew then.
  void commit(Knowledge released) {
    ++group_;
    released_.push_back({std::move(released), issued_});
    if (released_.size() > kKept) released_.pop_front();
  }
  void issue(const Product& product) {
    ++issued_;
    products_.push_back(product);
    if (products_.size() > kKept) products_.pop_front();
  }
  std::uint64_t issued() const { return issued_; }  // products, ever
  // The product with this number, from 0; null if it is not issued yet, or no longer kept.
  const Product* product(std::uint64_t number) const {
    const std::uint64_t first = issued_ - products_.size();
    return number < first || number >= issued_ ? nullptr : &products_[static_cast<std::size_t>(number - first)];
  }
  // How many products were issued before the commit with this number, from 1; 0 and false if it is not kept.
  std::pair<std::uint64_t, bool> issued_before(std::uint64_t commit) const {
    const std::uint64_t first = group_ - released_.size() + 1;
    if (commit < first || commit > group_) return {0, false};
    return {released_[static_cast<std::size_t>(commit - first)].issued, true};
  }
  // Of the commit with this number, from 1; of the oldest that is kept if it is older.
  const Knowledge& released_at(std::uint64_t number) const {
    const std::uint64_t first = group_ - released_.size() + 1;
    return released_[number > first ? static_cast<std::size_t>(number - first) : 0].known;
  }

 private:
  std::vector<std::uint32_t> touched_;
  std::vector<std::uint32_t> constant_;  // one more than epoch_ was; 0: it holds something else
  std::uint32_t epoch_ = 0;
  std::uint64_t group_ = 0;
  static constexpr std::size_t kKept = 64;
  struct Commit {
    Knowledge known;
    std::uint64_t issued;
  };
  std::deque<Commit> released_;
  std::uint64_t issued_ = 0;
  std::deque<Product> products_;
};

}  // namespace msa_ops::emulator::ptx
