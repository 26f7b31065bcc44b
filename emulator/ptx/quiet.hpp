// Which instructions change nothing that warps share.
#pragma once

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// False: each execution counts as a change. True: it works on registers, only reads memory, or says itself when it has
// changed some (Form::reports_changes, and PtxWarp::leave for lanes that end).
bool is_quiet(const Form& form);

}  // namespace msa_ops::emulator::ptx
