#include "code_objects.hpp"

namespace msa_ops {

extern const std::vector<CodeObject> kCodeObjects;
const std::vector<CodeObject> kCodeObjects{};

}  // namespace msa_ops
