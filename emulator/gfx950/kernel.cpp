#include "kernel.hpp"

#include <algorithm>
#include <stdexcept>

#include "../device/thread_block.hpp"
#include "polling.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {

Kernel::Kernel(const std::uint8_t* code_object, std::size_t bytes, const std::string& name) {
  CodeObject object = read_code_object(code_object, bytes);
  std::string names;
  const KernelImage* found = nullptr;
  for (const KernelImage& image : object.kernels) {
    names += (names.empty() ? "" : ", ") + image.name;
    if (image.name == name || (name.empty() && object.kernels.size() == 1)) found = &image;
  }
  if (found == nullptr) throw std::invalid_argument("kernel: '" + name + "'; the code object has " + names);
  image_ = *found;
  program_ = decode_kernel(object, image_);
  mark_polling_reads(program_.instructions);
  text_address_ = object.text_address;
  text_ = std::move(object.text);
  // Firmware that preloads kernel arguments starts behind the 256 bytes that load them.
  entry_ = index_at(image_.entry + ((image_.descriptor.preload & 0x7f) != 0 ? 256 : 0));
  const auto use = [&](const Range& range) {
    unsigned& end = range.first < kAccumulators ? rows_used_.first : rows_used_.second;
    end = std::max(end, unsigned{range.first} + range.count);
  };
  for (const Instruction& one : program_.instructions) {
    for (unsigned i = 0; i < one.num_vector_reads; ++i) use(one.vector_reads[i]);
    for (unsigned i = 0; i < one.num_vector_writes; ++i) use(one.vector_writes[i]);
    for (const Operand& source : one.sources) {  // that a swap writes too
      if (source.kind == Operand::Kind::kVector) use({source.index, source.dwords});
    }
  }
  if (entry_ == program_.instructions.size())
    throw CodeObjectError("code object: no instruction at the kernel's entry");
}

std::uint32_t Kernel::index_at(std::uint64_t offset) const {
  const auto found = program_.index_of.find(static_cast<std::uint32_t>(offset));
  return found != program_.index_of.end() ? found->second : static_cast<std::uint32_t>(program_.instructions.size());
}

std::unique_ptr<WarpProgram> Kernel::make_warp(ThreadBlock& block, unsigned index, unsigned lanes) const {
  std::shared_ptr<Workgroup> workgroup;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::weak_ptr<Workgroup>& known = workgroups_[&block];
    if (index > 0) workgroup = known.lock();
    if (!workgroup) {
      workgroup =
          std::make_shared<Workgroup>(image_.descriptor.group_segment_bytes + block.shape().dynamic_shared_memory);
      const auto& threads = block.shape().block;
      workgroup->lds.set_accepted(&accepted_);
      workgroup->lds.set_single_wave(threads[0] * threads[1] * threads[2] <= kLanes);
      known = workgroup;
    }
  }
  return std::make_unique<Wave>(*this, block, std::move(workgroup), index, lanes);
}

}  // namespace msa_ops::emulator::gfx950
