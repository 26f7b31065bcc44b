#include "program.hpp"

namespace msa_ops::emulator {

std::string Program::where(std::uint32_t pc) const {
  return line_of(pc) == 0 ? "" : place_of(pc, {}, -1).where();
}

Place Program::place_of(std::uint32_t pc, const std::array<unsigned, 3>& block, int warp) const {
  return {name(), line_of(pc), text_of(pc), block, warp, false, source_of(pc), program_text()};
}

}  // namespace msa_ops::emulator
