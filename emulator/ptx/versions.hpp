// Which versions of PTX there are, and from which one on a target exists.
#pragma once

#include <string>
#include <string_view>

namespace msa_ops::emulator::ptx {

// Throws PtxError for anything but the number of a version that exists.
void check_version(std::string_view version, int line);
// Throws PtxError for a target that no version has, or that this one has not yet; Unsupported for one that is newer than
// the chips of the table.
void check_target(const std::string& target, std::string_view version, int line);

}  // namespace msa_ops::emulator::ptx
