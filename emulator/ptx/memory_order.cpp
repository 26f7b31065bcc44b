#include "memory_order.hpp"

namespace msa_ops::emulator::ptx {

namespace {

bool has(const std::string& opcode, const char* word) {
  return (opcode + ".").find(std::string(".") + word + ".") != std::string::npos;
}

}  // namespace

Order order_of(const std::string& opcode) {
  if (has(opcode, "acq_rel") || has(opcode, "sc")) return Order::kAcquireRelease;
  if (has(opcode, "acquire")) return Order::kAcquire;
  if (has(opcode, "release")) return Order::kRelease;
  if (has(opcode, "relaxed") || has(opcode, "volatile") || has(opcode, "mmio")) return Order::kRelaxed;
  return Order::kDefault;
}

Reach scope_of(const std::string& opcode) {
  if (has(opcode, "sys") || has(opcode, "volatile") || has(opcode, "mmio")) return Reach::kSystem;
  if (has(opcode, "gpu") || has(opcode, "gl")) return Reach::kDevice;
  if (has(opcode, "cluster")) return Reach::kCluster;
  if (has(opcode, "cta")) return Reach::kBlock;
  return Reach::kDevice;
}

}  // namespace msa_ops::emulator::ptx
