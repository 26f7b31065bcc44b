#pragma once

#include <string>

#include "instruction.hpp"  // Order, Reach
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// What the modifiers of an instruction say about memory order.
Order order_of(const std::string& opcode);

// PtxError where ptxas refuses how they stand together: twice, an order of a load or store without a scope.
void check_order(const Statement& statement);

// Atomics that name none have that of the device; volatile accesses are as relaxed ones of the system.
Reach scope_of(const std::string& opcode);
// ld.global.nc: of what is read only for the whole launch.
bool is_read_only(const std::string& opcode);

}  // namespace msa_ops::emulator::ptx
