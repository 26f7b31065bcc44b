#include "compiled_kernels.hpp"

namespace msa_ops {

extern const std::vector<CompiledKernel> kCompiledKernels;
const std::vector<CompiledKernel> kCompiledKernels{};

}  // namespace msa_ops
