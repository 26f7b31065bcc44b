#pragma once

#include <string>

#include "instruction.hpp"  // Order, Reach

namespace msa_ops::emulator::ptx {

// What the modifiers of an instruction say about memory order.
Order order_of(const std::string& opcode);

// Atomics that name none have that of the device; volatile accesses are as relaxed ones of the system.
Reach scope_of(const std::string& opcode);

}  // namespace msa_ops::emulator::ptx
