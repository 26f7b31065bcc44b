// The launches of one call as an executable graph of the driver.
//
// A launch costs the host 3 to 4 us, whatever it launches; a graph of many kernels costs little more than one of them.
// Its nodes keep their arguments from launch to launch: those that changed are set anew.
#pragma once

#include <cstdint>
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

// One executable graph. Calls in different streams need one each: launches of the same graph wait for each other.
class LaunchGraph {
 public:
  LaunchGraph();
  ~LaunchGraph();
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;

  // Launches in a stream what differs from earlier calls in values alone. False, with nothing launched, if no graph can
  // be made of them. Throws std::runtime_error if the driver refuses a graph that it has made before.
  bool launch(int device, std::uintptr_t stream, std::vector<Launch>& launches);

 private:
  class Nodes;
  std::unique_ptr<Nodes> nodes_;
  bool impossible_ = false;
};

// The graphs of one call, of a few streams.
class LaunchGraphs {
 public:
  // On an H200's host a launch takes 3.7 us, two as a graph 1.9 us, and 0.5 us for each whose arguments are set.
  static constexpr std::size_t kLeastLaunches = 2;
  // Launches as a graph where that is quicker and possible, else one by one. Not while the stream is captured: what is
  // captured are the kernels.
  void launch(int device, std::uintptr_t stream, std::vector<Launch>& launches);

 private:
  static constexpr std::size_t kMostStreams = 4;
  struct OfStream {
    std::uintptr_t stream;
    std::unique_ptr<LaunchGraph> graph;
  };
  std::mutex mutex_;  // held until a graph is launched: its nodes' arguments are one call's
  std::vector<OfStream> graphs_;
};

}  // namespace msa_ops
