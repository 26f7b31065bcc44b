#include "session_runtime.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "devices_together.hpp"
#include "ptx/execute.hpp"

namespace msa_ops {
namespace {

constexpr int kLaunchFailed = 719;     // CUDA_ERROR_LAUNCH_FAILED
constexpr std::size_t kHeader = 64;    // of an ELF file: it tells how long the file is

// The machine code, alone or in a container as compilers embed it: a header (magic number, two bytes of version, two of
// the header's size), then entries (two bytes of kind, two of version, four of the entry's header's size).
const char* machine_code(const void* code) {
  constexpr std::uint32_t kContainer = 0xba55ed50;
  const auto* bytes = static_cast<const char*>(code);
  std::uint32_t magic, entry_header;
  std::uint16_t header;
  std::memcpy(&magic, bytes, sizeof(magic));
  if (magic != kContainer) return bytes;
  std::memcpy(&header, bytes + 6, sizeof(header));
  std::memcpy(&entry_header, bytes + header + 4, sizeof(entry_header));
  return bytes + header + entry_header;
}

}  // namespace

SessionRuntime::SessionRuntime(const emulator::Chip& chip, const emulator::RunOptions& options)
    : EmulatorRuntime({}, {}, chip, options), memory_({}), chip_(chip), options_(options) {}

void SessionRuntime::add_module(std::string code, std::string ptx) {
  if (code.size() < kHeader) throw std::invalid_argument("code: not a file of machine code");
  modules_.push_back({std::move(code), std::move(ptx)});
}

void SessionRuntime::set_memory(const std::vector<emulator::Allocation>& allocations) {
  memory_ = emulator::GlobalMemory(allocations);
}

void SessionRuntime::set_options(const emulator::RunOptions& options) { options_ = options; }

const std::string& SessionRuntime::module_with(const KernelImage& kernel) const {
  const char* code = machine_code(kernel.code);
  // The same code was made from the same text. The newest first: texts of one name differ.
  for (auto module = modules_.rbegin(); module != modules_.rend(); ++module) {
    if (std::memcmp(module->code.data(), code, kHeader) != 0) continue;  // so that no more is read than there is
    if (std::memcmp(module->code.data(), code, module->code.size()) == 0) return module->ptx;
  }
  throw std::invalid_argument("kernel " + kernel.name + ": its PTX is not known; it was compiled outside of the session");
}

int SessionRuntime::launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) {
  return failure_ ? kLaunchFailed : EmulatorRuntime::launch(config, kernel, parameters);
}

void SessionRuntime::execute(Launch launch) {
  if (together_) {
    together_->push_back(std::move(launch));
    return;
  }
  emulator::Counters counts;
  const std::string name = launch.kernel->name();
  emulator::ptx::execute(*launch.kernel, launch.shape, launch.parameters, chip_, memory_, options_, counts);
  launches.emplace_back(name, counts);
}

void SessionRuntime::begin_together() { together_.emplace(); }

std::vector<std::uint64_t> SessionRuntime::kept_streams() const {
  std::vector<std::uint64_t> streams;
  if (together_) {
    for (const Launch& one : *together_) streams.push_back(one.stream);
  }
  return streams;
}

void SessionRuntime::run_together() {
  std::vector<std::size_t> all(together_.value().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  run_together({all});
}

void SessionRuntime::run_together(const std::vector<std::vector<std::size_t>>& rounds) {
  std::vector<Launch> kept = std::move(together_.value());
  together_.reset();
  std::vector<bool> placed(kept.size());
  for (const auto& round : rounds) {
    for (const std::size_t at : round) {
      if (at >= kept.size() || placed[at]) throw std::invalid_argument("rounds: a launch that is none, or twice");
      placed[at] = true;
    }
  }
  if (std::find(placed.begin(), placed.end(), false) != placed.end()) {
    throw std::invalid_argument("rounds: a launch is in none");
  }
  for (const auto& round : rounds) {
    if (round.empty()) continue;
    std::vector<Launch> together;
    std::vector<std::string> names;
    for (const std::size_t at : round) {
      names.push_back(kept[at].kernel->name());
      together.push_back(std::move(kept[at]));
    }
    DevicesTogether devices(chip_, options_, std::vector<emulator::GlobalMemory>(round.size(), memory_));
    devices.execute(std::move(together));
    const auto counters = devices.counters();
    for (std::size_t i = 0; i < names.size(); ++i) launches.emplace_back(names[i], counters[i]);
  }
}

}  // namespace msa_ops
