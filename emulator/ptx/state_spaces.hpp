// State spaces that an instruction must name in full.
#pragma once

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// Throws PtxError, as ptxas 13.5 refuses it: plain `.shared` in bulk and tensor copies, in tcgen05.alloc and in
// clusterlaunchcontrol, which want `.shared::cta` or `.shared::cluster`; both but the latter in tcgen05.commit.
void check_state_spaces(const Statement& statement);

}  // namespace msa_ops::emulator::ptx
