// What somebody knows of the actors of other clusters, and how far an order reaches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace msa_ops::emulator {

using Actor = std::uint32_t;
using Clock = std::uint32_t;

// Who takes part in a synchronisation: threads of the block, the cluster, the device, all devices.
enum class Reach : std::uint8_t { kBlock, kCluster, kDevice, kSystem };

// fence.sc: what comes before one is ordered before what comes after another one, if something that the first one is
// ordered before was read, be it by a relaxed access, in front of the second one: then the fences have no other order
// (PTX's axioms of Fence-SC and causality). `before`: has a fence.sc behind it. `told`: that was read of others; it is
// seen from the next fence.sc on. Both go with every order, `before` becomes `told` with strong accesses of any kind.
// Two fences must be in each other's scope: those of a device tell their own one alone.
struct SequentialOrder {
  std::vector<Clock> before, told;                      // by fences of a device or more
  std::vector<Clock> before_of_system, told_of_system;  // by fences of the system
  void join(const SequentialOrder& other);
  // A fence behind what `seen` says, which it adds to.
  void fence(std::vector<Clock>& seen, bool of_system);
  // What a strong access tells of it, to threads of its own device or of all.
  SequentialOrder telling(bool of_system) const;
};

// Never changed once made, since many hold it: joining makes another one.
class Elsewhere {
 public:
  struct Cluster {
    std::uint32_t number = 0;
    std::vector<Clock> seen, fenced;  // of its actors; `fenced`: with a proxy fence for global memory on the way
    // What came before a fence.sc, and what a relaxed access has told of that (SequentialOrder).
    SequentialOrder sequential{};
  };
  using Pointer = std::shared_ptr<const Elsewhere>;

  static Pointer of(std::shared_ptr<const Cluster> one);
  static Pointer join(const Pointer& a, const Pointer& b);
  // All that is seen is fenced.
  static Pointer fence(const Pointer& all);
  static Pointer fence_sequential(const Pointer& all, bool of_system);
  // SequentialOrder::telling of each; null if nothing.
  static Pointer telling(const Pointer& all, bool of_system);
  // For threads of another device: without what only fences of the own device say.
  static Pointer for_others(const Pointer& all);

  const Cluster* find(std::uint32_t number) const;

 private:
  std::vector<std::shared_ptr<const Cluster>> clusters_;  // ascending
};

inline Clock at(const std::vector<Clock>& clocks, Actor actor) { return actor < clocks.size() ? clocks[actor] : 0; }
void join_clocks(std::vector<Clock>& into, const std::vector<Clock>& from);

}  // namespace msa_ops::emulator
