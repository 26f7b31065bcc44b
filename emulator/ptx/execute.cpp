#include "execute.hpp"

#include <algorithm>
#include <stdexcept>

namespace msa_ops::emulator::ptx {

const DeviceLimits kLimits{{2'147'483'647, 65'535, 65'535}, {1024, 1024, 64}, 1024, 232'448};

void execute(Kernel& kernel, const LaunchShape& shape, const std::vector<std::string>& parameters,
             const GlobalMemory& global, std::uint64_t max_instructions, Counters& counters) {
  const std::vector<Parameter>& declared = kernel.parameters();
  if (declared.size() != parameters.size()) {
    throw std::invalid_argument("kernel " + kernel.name() + " takes " + std::to_string(declared.size()) +
                                " parameters; " + std::to_string(parameters.size()) + " given");
  }
  std::vector<unsigned char> bytes(declared.empty() ? 0 : declared.back().offset + declared.back().bytes);
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (parameters[i].size() != declared[i].bytes) {
      throw std::invalid_argument("parameter " + std::to_string(i) + " of kernel " + kernel.name() + " has " +
                                  std::to_string(declared[i].bytes) + " bytes; " +
                                  std::to_string(parameters[i].size()) + " given");
    }
    std::copy(parameters[i].begin(), parameters[i].end(), bytes.data() + declared[i].offset);
  }
  kernel.set_parameters(std::move(bytes));
  kernel.check_block(shape.block);
  run_grid(kernel, shape, kLimits, global, max_instructions, counters);
}

}  // namespace msa_ops::emulator::ptx
