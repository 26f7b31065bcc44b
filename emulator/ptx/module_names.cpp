#include "module_names.hpp"

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

bool is_static_space(const std::string& space) { return space == ".global" || space == ".const"; }

}  // namespace

bool ModuleNames::declare(const Variable& made, const std::string& space, std::string_view linking, int line) {
  const bool is_external = linking == ".extern";
  const auto [found, is_new] = all_.emplace(made.name, Known{space, made.bytes, made.alignment, is_external});
  if (is_new) return true;
  Known& known = found->second;
  if (!known.is_external && !is_external) throw PtxError("`" + made.name + "` twice", line);
  const bool is_alike = known.space == space && known.alignment == made.alignment &&
                        (known.bytes == made.bytes || known.bytes == 0 || made.bytes == 0);
  if (!is_alike) throw PtxError("`" + made.name + "` is declared in another way before", line);
  if (known.is_external && !is_external && linking.empty()) {
    throw PtxError("`" + made.name + "` is external; accepted: a definition that is .visible, .weak or .common", line);
  }
  known.is_external = known.is_external && is_external;
  if (known.bytes == 0) known.bytes = made.bytes;
  return false;
}

void ModuleNames::claim(const std::string& name, const char* kind, int line) {
  const auto [known, is_new] = all_.emplace(name, Known{kind});
  if (!is_new && known->second.space != kind) throw PtxError("`" + name + "` is something else before", line);
}

bool ModuleNames::is_static(const std::string& name) const {
  const auto known = all_.find(name);
  return known != all_.end() && is_static_space(known->second.space);
}

void ModuleNames::check_externals(int line) const {
  for (const auto& [name, known] : all_) {
    if (!is_static_space(known.space) || !known.is_external) continue;
    throw PtxError("`" + name + "` is external, and nothing defines it", line);
  }
}

}  // namespace msa_ops::emulator::ptx
