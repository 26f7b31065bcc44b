// A kernel of a code object, decoded as a whole and ready to run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../device/program.hpp"
#include "code_object.hpp"
#include "coherence.hpp"
#include "decoder.hpp"
#include "lds.hpp"

namespace msa_ops::emulator::gfx950 {

// What the waves of one workgroup share beyond what the device model keeps.
struct Workgroup {
  explicit Workgroup(std::size_t lds_bytes) : lds(lds_bytes) {}
  Lds lds;
  Coherence::Group* group = nullptr;
  unsigned live_waves = 0;
};

class Kernel : public emulator::Program {
 public:
  // Throws CodeObjectError, Unsupported, or std::invalid_argument if there is no such kernel. An empty name takes the
  // only kernel.
  Kernel(const std::uint8_t* code_object, std::size_t bytes, const std::string& name);

  const std::string& name() const override { return image_.name; }
  unsigned warp_size() const override { return kLanes; }
  std::uint64_t shared_base() const override { return 0; }
  std::size_t static_shared_memory() const override { return image_.descriptor.group_segment_bytes; }
  std::unique_ptr<WarpProgram> make_warp(ThreadBlock& block, unsigned index, unsigned lanes) const override;

  const KernelImage& image() const { return image_; }
  const std::vector<Instruction>& instructions() const { return program_.instructions; }
  // Index of the instruction at a byte offset of the text, or the number of instructions.
  std::uint32_t index_at(std::uint64_t offset) const;
  std::uint32_t entry_index() const { return entry_; }
  // Rows of vector registers that an instruction names: [0, first) and [kAccumulators, second).
  std::pair<unsigned, unsigned> rows_used() const { return rows_used_; }
  std::uint64_t text_address() const { return text_address_; }
  const std::vector<std::uint8_t>& text() const { return text_; }

  void set_kernarg(std::uint64_t address, std::size_t bytes) {
    kernarg_ = address;
    kernarg_bytes_ = bytes;
  }
  void set_accepted(AcceptedFaults accepted) { accepted_ = std::move(accepted); }
  const AcceptedFaults& accepted() const { return accepted_; }
  // What keeps the memory of this launch, and the device that it is of.
  void set_coherence(Coherence* coherence, unsigned device) {
    coherence_ = coherence;
    device_ = device;
  }
  Coherence& coherence() const { return *coherence_; }
  unsigned device() const { return device_; }
  std::uint64_t kernarg() const { return kernarg_; }
  std::size_t kernarg_bytes() const { return kernarg_bytes_; }
  void set_dispatch_packet(std::uint64_t address) { dispatch_packet_ = address; }
  std::uint64_t dispatch_packet() const { return dispatch_packet_; }

 private:
  KernelImage image_;
  gfx950::Program program_;
  std::vector<std::uint8_t> text_;
  std::uint64_t text_address_ = 0;
  std::uint32_t entry_ = 0;
  std::pair<unsigned, unsigned> rows_used_{1, kAccumulators};
  std::uint64_t kernarg_ = 0;
  std::size_t kernarg_bytes_ = 0;
  std::uint64_t dispatch_packet_ = 0;
  AcceptedFaults accepted_;
  Coherence* coherence_ = nullptr;
  unsigned device_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<const ThreadBlock*, std::weak_ptr<Workgroup>> workgroups_;
};

}  // namespace msa_ops::emulator::gfx950
