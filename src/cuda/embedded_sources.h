// The device code that travels inside this program (src/cuda/kernels; cmake/EmbedSources.cmake
// writes the definition).
#pragma once

#include <span>
#include <string_view>

namespace moetune::cuda {

struct EmbeddedSource {
  std::string_view name;  ///< As includes write it: "cuda/kernels/ceilings.cuh".
  std::string_view text;  ///< Followed by a zero byte.
};

/// Every embedded source, sorted by name. Valid for ever.
std::span<const EmbeddedSource> embedded_sources();

}  // namespace moetune::cuda
