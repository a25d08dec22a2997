// Flags of the commands that know other engines: --vllm PATH, --sglang PATH and what their files'
// names depend on.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "exchange/engine.h"
#include "moetune/result.h"

namespace moetune::cli {

struct EngineFlags {
  std::string vllm;
  std::string sglang;
  std::string device_name;
  std::string engine_version;
  std::string triton_version;

  void declare(Flags& flags, const char* path_help);
  struct Values {
    exchange::Engine engine = exchange::Engine::kVllm;
    std::string path;
    exchange::Version engine_version;  ///< Not known where the flag is not given.
    exchange::Version triton_version;  ///< The same.
  };
  /// kInvalidArgument where none or both of the engines are named, or a version is none.
  Result<Values> read() const;
};

/// What the engines call the device: --device-name where it is given, else the first GPU's name.
/// kUnsupported where there is neither.
Result<std::string> find_device_name(const std::string& flag);

}  // namespace moetune::cli
