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

// Never changed once made, since many hold it: joining makes another one.
class Elsewhere {
 public:
  struct Cluster {
    std::uint32_t number = 0;
    std::vector<Clock> seen, fenced;  // of its actors; `fenced`: with a proxy fence for global memory on the way
  };
  using Pointer = std::shared_ptr<const Elsewhere>;

  static Pointer of(std::shared_ptr<const Cluster> one);
  static Pointer join(const Pointer& a, const Pointer& b);
  // All that is seen is fenced.
  static Pointer fence(const Pointer& all);

  const Cluster* find(std::uint32_t number) const;

 private:
  std::vector<std::shared_ptr<const Cluster>> clusters_;  // ascending
};

inline Clock at(const std::vector<Clock>& clocks, Actor actor) { return actor < clocks.size() ? clocks[actor] : 0; }
void join_clocks(std::vector<Clock>& into, const std::vector<Clock>& from);

}  // namespace msa_ops::emulator
