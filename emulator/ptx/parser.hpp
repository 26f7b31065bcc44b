// PTX text to syntax.
#pragma once

#include <string_view>

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// Throws PtxError for text that is not PTX, and Unsupported for declarations that the emulator does not execute.
// Debug information is passed over.
Module parse(std::string_view source);

}  // namespace msa_ops::emulator::ptx
