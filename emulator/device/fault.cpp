#include "fault.hpp"

#include <sstream>

namespace msa_ops::emulator {

std::string Place::where() const {
  return "line " + std::to_string(line) + (source.shown.empty() ? "" : " (" + source.shown + ")");
}

std::string Fault::describe(const Violation& violation, const Place& place) {
  std::ostringstream out;
  out << name_of(violation.kind) << ": " << violation.message << " [kernel " << place.kernel;
  if (place.by_address) out << ", at 0x" << std::hex << place.line << std::dec << " `" << place.text << "`";
  else if (place.line > 0) out << ", " << place.where() << " `" << place.text << "`";
  out << ", block (" << place.block[0] << ", " << place.block[1] << ", " << place.block[2] << ")";
  if (place.warp >= 0) out << ", warp " << place.warp;
  if (violation.lane >= 0) out << ", lane " << violation.lane;
  if (violation.address) out << ", address 0x" << std::hex << *violation.address;
  out << "]";
  return out.str();
}

}  // namespace msa_ops::emulator
