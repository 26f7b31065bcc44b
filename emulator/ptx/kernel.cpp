#include "kernel.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "error.hpp"
#include "parser.hpp"
#include "preparation.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// Registers of a thread that ptxas 13 leaves to a kernel which changes them: those that its directives name, or what the
// blocks that shall fit on a multiprocessor leave to a thread. 0 where the text says neither: then ptxas ignores
// setmaxnreg, and says so.
unsigned registers_at_start(const Entry& entry) {
  constexpr unsigned kPartitions = 4, kRegisters = 16384, kMostOfAThread = 256;  // of a multiprocessor; in each
  if (entry.max_registers != 0) return entry.max_registers;
  const auto& required = entry.required_threads;
  const unsigned threads = required[0] != 0 ? required[0] * required[1] * required[2] : entry.max_threads;
  if (threads == 0 || entry.blocks_a_multiprocessor == 0) return 0;
  const std::uint64_t warps = std::max<std::uint64_t>(
      1, (std::uint64_t{threads} + kLanes - 1) / kLanes * entry.blocks_a_multiprocessor);
  const std::uint64_t each = kRegisters / (kLanes * ((warps + kPartitions - 1) / kPartitions));
  return static_cast<unsigned>(std::min<std::uint64_t>(each, kMostOfAThread) / 8 * 8);
}

}  // namespace

Kernel::Kernel(std::string_view source, const std::string& entry) : text_(std::make_shared<const std::string>(source)) {
  const Module module = parse(*text_);
  const Entry* found = nullptr;
  std::string names;
  for (const Entry& candidate : module.entries) {
    names += (names.empty() ? "" : ", ") + candidate.name;
    if (candidate.name == entry || (entry.empty() && module.entries.size() == 1)) found = &candidate;
  }
  if (found == nullptr) throw std::invalid_argument("entry: '" + entry + "'; the PTX has: " + names);
  name_ = found->name;
  target_ = module.target;
  parameters_ = found->parameters;
  required_threads_ = found->required_threads;
  max_threads_ = found->max_threads;
  required_cluster_ = found->required_cluster;
  most_cluster_blocks_ = found->most_cluster_blocks;
  explicit_cluster_ = found->explicit_cluster;
  // At an address that does not change, for kernels that take the address of a parameter.
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = parameters_.empty() ? 0 : parameters_.back().offset + parameters_.back().bytes;
  parameter_memory_.resize(bytes + kAlignment);
  const auto address = reinterpret_cast<std::uintptr_t>(parameter_memory_.data());
  parameter_bytes_ = {parameter_memory_.data() + (kAlignment - address % kAlignment) % kAlignment, bytes};
  const auto start = reinterpret_cast<std::uint64_t>(parameter_bytes_.data());
  prepared_.variables.push_back({start, bytes, false, "the kernel's parameters"});
  Preparation(prepared_, module, *found, Kernel::shared_base(), start).run();
  unsigned most = 0;  // that a warp may ask for
  for (const Instruction& one : prepared_.instructions) {
    if (one.form->opcode.compare(0, 11, "setmaxnreg.") != 0) continue;
    if (one.operands[0].space != Operand::Space::kConstants) throw PtxError("setmaxnreg takes a constant", one.line);
    most = std::max(most, *reinterpret_cast<const std::uint32_t*>(prepared_.constants.data() + one.operands[0].offset));
  }
  registers_a_thread_ = std::min(most, registers_at_start(*found));
}

std::string Kernel::text_of(std::uint32_t pc) const {
  constexpr std::size_t kMost = 120;  // of wgmma with its registers the beginning is enough to find it
  if (pc >= prepared_.written.size()) return "";
  std::string made;
  for (const char c : prepared_.written[pc]) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!blank || (!made.empty() && made.back() != ' ')) made += blank ? ' ' : c;
  }
  while (!made.empty() && made.back() == ' ') made.pop_back();
  return made.size() <= kMost ? made : made.substr(0, kMost) + "...";
}

SourcePlace Kernel::source_of(std::uint32_t pc) const {
  std::call_once(has_sources_, [this] { sources_ = std::make_unique<const SourceLines>(*text_); });
  return sources_->of(line_of(pc));
}

void Kernel::set_parameters(const std::vector<unsigned char>& bytes) {
  const auto offset = parameter_bytes_.data() - parameter_memory_.data();
  std::copy(bytes.begin(), bytes.end(), parameter_memory_.begin() + offset);
}

std::unique_ptr<WarpProgram> Kernel::make_warp(ThreadBlock& block, unsigned index, unsigned lanes) const {
  return std::make_unique<PtxWarp>(*this, block, index, lanes);
}

void Kernel::check_block(const std::array<unsigned, 3>& block) const {
  const auto text = [](const std::array<unsigned, 3>& size) {
    return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
  };
  if (required_threads_[0] != 0 && required_threads_ != block) {
    throw std::invalid_argument("block: " + text(block) + "; the kernel demands " + text(required_threads_));
  }
  if (max_threads_ != 0 && block[0] * block[1] * block[2] > max_threads_) {
    throw std::invalid_argument("block: " + text(block) + "; the kernel takes " + std::to_string(max_threads_) +
                                " threads at most");
  }
}

void Kernel::check_cluster(LaunchShape& shape) const {
  const bool demands = required_cluster_[0] != 0;
  if (demands && !shape.asks_for_cluster) shape.cluster = required_cluster_;
  shape.has_clusters = demands || shape.asks_for_cluster;
  if (demands && required_cluster_ != shape.cluster) {
    throw std::invalid_argument("kernel " + name_ + ": launched in clusters of " + std::to_string(shape.cluster_blocks()) +
                                " blocks; it demands " + std::to_string(required_cluster_[0]) + " x " +
                                std::to_string(required_cluster_[1]) + " x " + std::to_string(required_cluster_[2]));
  }
  if (explicit_cluster_ && !demands && !shape.asks_for_cluster) {
    throw std::invalid_argument("kernel " + name_ + ": launched without a cluster's size, which it demands (.explicitcluster)");
  }
  if (most_cluster_blocks_ != 0 && shape.cluster_blocks() > most_cluster_blocks_) {
    throw std::invalid_argument("kernel " + name_ + ": launched in clusters of " + std::to_string(shape.cluster_blocks()) +
                                " blocks; it takes " + std::to_string(most_cluster_blocks_) + " at most (.maxclusterrank)");
  }
}

}  // namespace msa_ops::emulator::ptx
