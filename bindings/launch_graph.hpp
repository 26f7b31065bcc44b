// The launches of one call as an executable graph of the driver.
//
// On the host of an H200 a launch takes 3.7 us, a graph of one or of seven kernels 1.9 us, and 0.5 us more for each kernel
// whose arguments are set. So nodes keep their arguments from launch to launch, and those that changed are set anew; a
// call at the addresses of the one before only launches.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "compiled_kernels.hpp"

namespace msa_ops {

// A kernel with its arguments, as KernelLauncher takes them.
struct Launch {
  int position;
  LaunchValues values;
};

// The launches of a call, which need to be made only if its addresses are not those of the call before.
using MakeLaunches = std::function<std::vector<Launch>&()>;

// One executable graph. Calls in different streams need one each: launches of the same graph wait for each other.
class LaunchGraph {
 public:
  LaunchGraph();
  ~LaunchGraph();
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;

  // Launches in a stream what differs from earlier calls in values alone, and only if `addresses` differ. False, with
  // nothing launched, if no graph can be made of them. Throws std::runtime_error if the driver refuses a graph that it has
  // made before.
  bool launch(int device, std::uintptr_t stream, const std::vector<std::uintptr_t>& addresses,
              const MakeLaunches& launches);

  // Those of the call whose arguments the nodes have; empty if there is none.
  const std::vector<std::uintptr_t>& addresses() const { return addresses_; }

 private:
  class Nodes;
  std::unique_ptr<Nodes> nodes_;
  std::vector<std::uintptr_t> addresses_;
  bool impossible_ = false;
};

// The graphs of one call in one stream: where a loop goes round a few sets of addresses, as it does when results are kept
// until the next are made, or with a few layers of a model, one graph for each, so that no arguments have to be set.
class StreamGraphs {
 public:
  // As LaunchGraph::launch. grew: counts the graphs that are made.
  bool launch(int device, std::uintptr_t stream, const std::vector<std::uintptr_t>& addresses,
              const MakeLaunches& launches, std::size_t& grew);
  std::size_t size() const { return graphs_.size(); }

 private:
  static constexpr std::size_t kMost = 8;
  static constexpr int kReturnsBefore = 3;
  // Where the graph of the call is put: first, as the one used last.
  LaunchGraph& choose(const std::vector<std::uintptr_t>& addresses, std::size_t& grew);

  std::vector<std::unique_ptr<LaunchGraph>> graphs_;             // used last first
  std::vector<std::vector<std::uintptr_t>> given_up_;            // addresses whose graph took others, the last at the end
  int returns_ = 0;  // calls at addresses that had been given up, since a graph was made
  std::size_t most_ = kMost;
};

// The graphs of one call, of a few streams.
class LaunchGraphs {
 public:
  // Launches as a graph if one is made, else one by one: the first calls, those in more streams than a few, and while
  // the stream is captured, so that what is captured are the kernels.
  // plain: the stream is not captured. addresses: all that the launches' values follow from. Returns how many graphs were made.
  std::size_t launch(int device, std::uintptr_t stream, bool plain, const std::vector<std::uintptr_t>& addresses,
              const MakeLaunches& launches);

  std::uint64_t last_use() const { return last_use_; }  // of all graphs of the process, in order
  // Destroys the graphs, unless one is just launched. Returns how many there were.
  std::size_t clear();

 private:
  static constexpr std::size_t kMostStreams = 4;
  // A graph costs some 50 us and memory; a call that is not made so often does without.
  static constexpr int kCallsBefore = 3;
  struct OfStream {
    std::uintptr_t stream;
    int calls;
    StreamGraphs graphs;
  };
  OfStream* find(std::uintptr_t stream);

  std::mutex mutex_;  // held until a graph is launched: its nodes' arguments are one call's
  std::vector<OfStream> graphs_;
  std::atomic<std::uint64_t> last_use_{0};
};

}  // namespace msa_ops
