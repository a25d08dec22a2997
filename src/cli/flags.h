// Flags that mean the same for every command that has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "engine/real_weights.h"
#include "model/model_spec.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune::cli {

/// MODEL, --weights, --activations, --shared-experts, --tp, --ep, --rank, and --layer where
/// commands run something: which layer.
struct LayerFlags {
  std::string model;
  std::string weights;
  std::string activations = "a16";
  bool shared_experts = false;
  std::string tp = "1";
  std::string ep = "1";
  std::string rank = "0";
  std::string layer;

  void declare(Flags& flags);
  void declare_layer(Flags& flags);  ///< --layer
  struct Layer {
    ModelSpec model;
    FusedMoeSpec spec;
    std::optional<RealWeights> weights;  ///< With --layer.
  };
  Result<Layer> read() const;
};

/// --device, --threads, --memory: what it runs on.
struct DeviceFlags {
  std::string device = "auto";
  std::string threads = "0";
  std::string memory;

  void declare(Flags& flags);
  struct Values {
    std::string device;
    int threads = 0;
    std::optional<uint64_t> memory_bytes;
  };
  Result<Values> read() const;
};

/// --tokens, --workload, --seed: what runs through it.
struct TrafficFlags {
  std::string tokens;
  std::string workload;
  std::string seed = "0";

  /// With what counts where the flags are not given.
  TrafficFlags(std::string default_tokens, std::string default_workload)
      : tokens(std::move(default_tokens)), workload(std::move(default_workload)) {}

  void declare(Flags& flags, const char* tokens_help);
  struct Values {
    std::vector<int64_t> tokens;  ///< Ascending, distinct.
    std::vector<std::string>
        workloads;  ///< As parse_workload() takes them; one where `many` was false.
    uint64_t seed = 0;
  };
  /// `many`: whether --workload may be a list.
  Result<Values> read(bool many) const;
};

}  // namespace moetune::cli
