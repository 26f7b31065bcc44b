#include "elsewhere.hpp"

#include <algorithm>

namespace msa_ops::emulator {
namespace {

bool covers(const std::vector<Clock>& a, const std::vector<Clock>& b) {
  for (Actor actor = 0; actor < b.size(); ++actor) {
    if (at(a, actor) < b[actor]) return false;
  }
  return true;
}

bool covers(const Elsewhere::Cluster& a, const Elsewhere::Cluster& b) {
  return covers(a.seen, b.seen) && covers(a.fenced, b.fenced) && covers(a.sequential.before, b.sequential.before) &&
         covers(a.sequential.told, b.sequential.told) &&
         covers(a.sequential.before_of_system, b.sequential.before_of_system) &&
         covers(a.sequential.told_of_system, b.sequential.told_of_system);
}

}  // namespace

void join_clocks(std::vector<Clock>& into, const std::vector<Clock>& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void SequentialOrder::join(const SequentialOrder& other) {
  join_clocks(before, other.before);
  join_clocks(told, other.told);
  join_clocks(before_of_system, other.before_of_system);
  join_clocks(told_of_system, other.told_of_system);
}

void SequentialOrder::fence(std::vector<Clock>& seen, bool of_system) {
  join_clocks(seen, told);
  if (of_system) join_clocks(seen, told_of_system);
  before = seen;
  if (of_system) before_of_system = seen;
}

SequentialOrder SequentialOrder::telling(bool of_system) const {
  SequentialOrder made;
  if (of_system) made.told_of_system = before_of_system;
  else made.told = before;
  return made;
}

Elsewhere::Pointer Elsewhere::of(std::shared_ptr<const Cluster> one) {
  auto made = std::make_shared<Elsewhere>();
  made->clusters_.push_back(std::move(one));
  return made;
}

Elsewhere::Pointer Elsewhere::join(const Pointer& a, const Pointer& b) {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  auto made = std::make_shared<Elsewhere>();
  auto& all = made->clusters_;
  bool only_a = true, only_b = true;
  auto x = a->clusters_.begin(), y = b->clusters_.begin();
  while (x != a->clusters_.end() || y != b->clusters_.end()) {
    if (y == b->clusters_.end() || (x != a->clusters_.end() && (*x)->number < (*y)->number)) {
      only_b = false;
      all.push_back(*x++);
    } else if (x == a->clusters_.end() || (*y)->number < (*x)->number) {
      only_a = false;
      all.push_back(*y++);
    } else {
      if (*x == *y || covers(**x, **y)) {
        only_b = only_b && *x == *y;
        all.push_back(*x);
      } else if (covers(**y, **x)) {
        only_a = false;
        all.push_back(*y);
      } else {
        only_a = only_b = false;
        auto both = std::make_shared<Cluster>(**x);
        join_clocks(both->seen, (*y)->seen);
        join_clocks(both->fenced, (*y)->fenced);
        both->sequential.join((*y)->sequential);
        all.push_back(std::move(both));
      }
      ++x, ++y;
    }
  }
  return only_a ? a : only_b ? b : made;
}

Elsewhere::Pointer Elsewhere::fence(const Pointer& all) {
  if (all == nullptr) return all;
  auto made = std::make_shared<Elsewhere>();
  for (const auto& one : all->clusters_) {
    if (one->fenced == one->seen) {
      made->clusters_.push_back(one);
    } else {
      made->clusters_.push_back(std::make_shared<Cluster>(Cluster{one->number, one->seen, one->seen, one->sequential}));
    }
  }
  return made;
}

Elsewhere::Pointer Elsewhere::fence_sequential(const Pointer& all, bool of_system) {
  if (all == nullptr) return all;
  auto made = std::make_shared<Elsewhere>();
  for (const auto& one : all->clusters_) {
    auto now = std::make_shared<Cluster>(*one);
    now->sequential.fence(now->seen, of_system);
    made->clusters_.push_back(std::move(now));
  }
  return made;
}

Elsewhere::Pointer Elsewhere::telling(const Pointer& all, bool of_system) {
  if (all == nullptr) return all;
  std::shared_ptr<Elsewhere> made;
  for (const auto& one : all->clusters_) {
    if ((of_system ? one->sequential.before_of_system : one->sequential.before).empty()) continue;
    if (made == nullptr) made = std::make_shared<Elsewhere>();
    made->clusters_.push_back(std::make_shared<Cluster>(Cluster{one->number, {}, {}, one->sequential.telling(of_system)}));
  }
  return made;
}

Elsewhere::Pointer Elsewhere::for_others(const Pointer& all) {
  const auto has_own = [](const auto& one) { return !one->sequential.before.empty() || !one->sequential.told.empty(); };
  if (all == nullptr || std::none_of(all->clusters_.begin(), all->clusters_.end(), has_own)) return all;
  auto made = std::make_shared<Elsewhere>();
  for (const auto& one : all->clusters_) {
    auto now = std::make_shared<Cluster>(*one);
    now->sequential.before.clear();
    now->sequential.told.clear();
    made->clusters_.push_back(std::move(now));
  }
  return made;
}

const Elsewhere::Cluster* Elsewhere::find(std::uint32_t number) const {
  const auto found = std::lower_bound(clusters_.begin(), clusters_.end(), number,
                                      [](const auto& one, std::uint32_t wanted) { return one->number < wanted; });
  return found != clusters_.end() && (*found)->number == number ? found->get() : nullptr;
}

}  // namespace msa_ops::emulator
