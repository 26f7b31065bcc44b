#include "kept_workspaces.hpp"

#include <algorithm>
#include <utility>

namespace msa_ops {

KeptWorkspaces& KeptWorkspaces::instance() {
  static auto* kept = new KeptWorkspaces();  // never destroyed: torch may be gone by then
  return *kept;
}

KeptWorkspaces::Workspace KeptWorkspaces::take(int device, std::uintptr_t stream, std::int64_t num_bytes) {
  auto best = kept_.end();
  for (auto one = kept_.begin(); one != kept_.end(); ++one) {
    const bool fits = one->device == device && one->stream == stream && one->num_bytes >= num_bytes;
    if (fits && (best == kept_.end() || one->num_bytes < best->num_bytes)) best = one;
  }
  if (best == kept_.end()) return {nullptr, device, stream, num_bytes};
  Workspace taken = std::move(*best);
  kept_.erase(best);
  return taken;
}

void KeptWorkspaces::give_back(Workspace workspace) {
  if (workspace.num_bytes > kMostBytes) return;
  const int device = workspace.device;
  kept_.push_back(std::move(workspace));
  std::int64_t bytes = 0;
  for (const Workspace& one : kept_) bytes += one.device == device ? one.num_bytes : 0;
  while (bytes > kMostBytes || kept_.size() > kMostWorkspaces) {
    const auto oldest = std::find_if(kept_.begin(), kept_.end(), [&](const Workspace& one) {
      return bytes <= kMostBytes || one.device == device;
    });
    bytes -= oldest->device == device ? oldest->num_bytes : 0;
    const Workspace dropped = std::move(*oldest);
    kept_.erase(oldest);
  }
}

}  // namespace msa_ops
