#include "launch_graph.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace msa_ops {
namespace {

// As the driver; every launch becomes a node of the graph that a stream is captured into.
class CapturingRuntime : public ForwardingRuntime {
 public:
  CapturingRuntime(DriverRuntime& driver, void* stream) : ForwardingRuntime(driver), stream_(stream) {}
  int launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) override {
    const int status = driver_.launch(config, kernel, parameters);
    return status != 0 ? status : keep_node();
  }
  int clear(std::uint64_t address, std::size_t num_bytes, void* stream) override {
    const int status = driver_.clear(address, num_bytes, stream);
    return status != 0 ? status : keep_node();
  }
  std::vector<void*> nodes;

 private:
  int keep_node() {
    void* node = nullptr;
    const int status = driver_.last_captured(stream_, &node);
    nodes.push_back(node);
    return status;
  }
  void* stream_;
};

// As the driver, but a launch sets the arguments of a node.
class SettingRuntime : public ForwardingRuntime {
 public:
  SettingRuntime(DriverRuntime& driver, void* graph) : ForwardingRuntime(driver), graph_(graph) {}
  int launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) override {
    return driver_.set_kernel_node(graph_, node, config, kernel, parameters);
  }
  int clear(std::uint64_t address, std::size_t num_bytes, void*) override {
    return driver_.set_clear_node(graph_, node, address, num_bytes);
  }
  void* node = nullptr;

 private:
  void* graph_;
};

}  // namespace

// What the driver knows of the graph.
class LaunchGraph::Nodes {
 public:
  explicit Nodes(DriverRuntime& driver) : driver_(driver) {}
  ~Nodes() {
    const DriverRuntime::RelaxedCapture relaxed(driver_);
    // Launches of it that are under way end first.
    if (executable_ != nullptr) driver_.destroy_executable(executable_);
    if (graph_ != nullptr) driver_.destroy_graph(graph_);
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  bool make(int device, std::vector<Launch>& launches) {
    const DriverRuntime::RelaxedCapture relaxed(driver_);
    void* stream = nullptr;
    if (driver_.begin_capture(&stream) != 0) return false;
    CapturingRuntime capturing(driver_, stream);
    bool complete = true;
    try {
      const KernelLauncher launcher(device, reinterpret_cast<std::uintptr_t>(stream), &capturing);
      for (Launch& launch : launches) launcher.launch(launch.position, launch.values);
    } catch (const std::runtime_error&) {
      complete = false;
    }
    complete &= driver_.end_capture(stream, &graph_) == 0;
    complete = complete && capturing.nodes.size() == launches.size();
    complete = complete && driver_.instantiate(graph_, &executable_) == 0;
    nodes_ = std::move(capturing.nodes);
    if (complete) remember(launches);
    return complete;
  }

  // Throws if the driver refuses; the nodes are not of one call then.
  void set(int device, std::uintptr_t stream, std::vector<Launch>& launches) {
    SettingRuntime setting(driver_, executable_);
    const KernelLauncher launcher(device, stream, &setting);
    for (std::size_t i = 0; i < launches.size(); ++i) {
      if (launches[i].values == set_[i]) continue;
      setting.node = nodes_[i];
      launcher.launch(launches[i].position, launches[i].values);
    }
    remember(launches);
  }

  void launch(std::uintptr_t stream) {
    const int status = driver_.launch_graph(executable_, reinterpret_cast<void*>(stream));
    if (status == 0) return;
    std::string names;
    for (const int position : positions_) {
      if (position == kClear) continue;
      names += (names.empty() ? "kernel " : ", ") + std::string(compiled_kernels()[position].name);
    }
    throw std::runtime_error(names + ": the launch of their graph failed: " + driver_.describe(status));
  }

 private:
  void remember(const std::vector<Launch>& launches) {
    set_.clear();
    positions_.clear();
    for (const Launch& launch : launches) {
      set_.push_back(launch.values);
      positions_.push_back(launch.position);
    }
  }

  DriverRuntime& driver_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
  std::vector<void*> nodes_;
  std::vector<LaunchValues> set_;  // the arguments that the nodes have
  std::vector<int> positions_;     // of their kernels
};

LaunchGraph::LaunchGraph() = default;
LaunchGraph::~LaunchGraph() = default;

bool LaunchGraph::launch(int device, std::uintptr_t stream, const std::vector<std::uintptr_t>& addresses,
                         const MakeLaunches& launches) {
  if (impossible_) return false;
  DriverRuntime& driver = DriverRuntime::instance();
  const DriverRuntime::DeviceScope scope(driver, device);
  try {
    if (nodes_ == nullptr) {
      auto made = std::make_unique<Nodes>(driver);
      if (!made->make(device, launches())) {
        impossible_ = true;
        return false;
      }
      nodes_ = std::move(made);
    } else if (addresses_ != addresses) {
      nodes_->set(device, stream, launches());
    }
    addresses_ = addresses;
    nodes_->launch(stream);
  } catch (...) {
    nodes_.reset();  // made anew by the next call
    addresses_.clear();
    throw;
  }
  return true;
}

LaunchGraph& StreamGraphs::choose(const std::vector<std::uintptr_t>& addresses, std::size_t& grew) {
  auto chosen = std::find_if(graphs_.begin(), graphs_.end(),
                             [&addresses](const auto& graph) { return graph->addresses() == addresses; });
  if (chosen == graphs_.end()) {
    const auto before = std::find(given_up_.begin(), given_up_.end(), addresses);
    if (before != given_up_.end()) {
      given_up_.erase(before);
      ++returns_;
    }
    if (graphs_.empty() || (returns_ >= kReturnsBefore && graphs_.size() < most_)) {
      graphs_.push_back(std::make_unique<LaunchGraph>());
      returns_ = 0;
      ++grew;
    } else if (most_ > 1) {
      if (given_up_.size() < kMost) given_up_.emplace_back();
      else std::rotate(given_up_.begin(), given_up_.begin() + 1, given_up_.end());
      given_up_.back() = graphs_.back()->addresses();
    }
    chosen = graphs_.end() - 1;
  }
  std::rotate(graphs_.begin(), chosen, chosen + 1);
  return *graphs_.front();
}

bool StreamGraphs::launch(int device, std::uintptr_t stream, const std::vector<std::uintptr_t>& addresses,
                          const MakeLaunches& launches, std::size_t& grew) {
  if (choose(addresses, grew).launch(device, stream, addresses, launches)) return true;
  // Where none can be made, the first stays to say so; where no more can be made, the others serve.
  if (graphs_.size() > 1) {
    graphs_.erase(graphs_.begin());
    --grew;
  }
  most_ = graphs_.size();
  return false;
}

LaunchGraphs::OfStream* LaunchGraphs::find(std::uintptr_t stream) {
  const auto own =
      std::find_if(graphs_.begin(), graphs_.end(), [stream](const OfStream& one) { return one.stream == stream; });
  if (own != graphs_.end()) return &*own;
  if (graphs_.size() >= kMostStreams) return nullptr;
  graphs_.push_back({stream, 0, {}});
  return &graphs_.back();
}

std::size_t LaunchGraphs::clear() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  std::size_t made = 0;
  for (const OfStream& one : graphs_) made += one.graphs.size();
  graphs_.clear();
  return made;
}

std::size_t LaunchGraphs::launch(int device, std::uintptr_t stream, bool plain, const std::vector<std::uintptr_t>& addresses,
                          const MakeLaunches& launches) {
  static std::atomic<std::uint64_t> uses{0};
  std::size_t grew = 0;
  if (plain) {
    const std::lock_guard<std::mutex> lock(mutex_);
    last_use_ = ++uses;
    OfStream* own = find(stream);
    if (own != nullptr && own->calls < kCallsBefore) {
      ++own->calls;
    } else if (own != nullptr) {
      if (own->graphs.launch(device, stream, addresses, launches, grew)) return grew;
    }
  }
  const KernelLauncher launcher(device, stream);
  for (Launch& launch : launches()) launcher.launch(launch.position, launch.values);
  return grew;
}

}  // namespace msa_ops
