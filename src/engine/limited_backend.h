// --memory: a backend that acts as if its device had less memory.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/backend.h"

namespace moetune {

/// Inputs, outputs and workspaces together get no more than `limit_bytes` less `weights_bytes`:
/// what exceeds that is out of memory, as it would be on a smaller device. Weights belong to their
/// runner and count as given.
std::unique_ptr<Backend> limit_memory(std::unique_ptr<Backend> backend, uint64_t limit_bytes,
                                      uint64_t weights_bytes);

}  // namespace moetune
