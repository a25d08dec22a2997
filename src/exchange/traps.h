// Why an engine does not find a tuning file that seems to be there: files that are nearly the one
// it looks for, and what each differs in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exchange/folders.h"
#include "exchange/table_name.h"

namespace moetune::exchange {

/// One reason, with an example of a file.
struct Trap {
  enum class Kind : uint8_t {
    kMisplaced,     ///< The very file, in a folder where the engine does not look.
    kSpelling,      ///< The same, but for how a part of the name is written.
    kTriton,        ///< SGLang: for another version of Triton.
    kDevice,        ///< For a device whose name differs a little.
    kSharedExpert,  ///< With the shared experts counted, or without.
    kParallel,      ///< For another number of tensor-parallel ranks.
    kFormat,        ///< For other weights: dtype or block_shape.
    kOtherDevice,   ///< For quite another device.
  };
  Kind kind = Kind::kMisplaced;
  std::string path;
  std::string text;  ///< What differs, and what to do; for people.
};
const char* to_string(Trap::Kind kind);

/// What is known of the layer beyond the file's name; 0: not known.
struct LayerFacts {
  int64_t shared_experts = 0;     ///< That may be fused into the layer, and are not counted in E.
  int64_t fused_experts = 0;      ///< Shared experts that are counted in E.
  int64_t full_intermediate = 0;  ///< N of all tensor-parallel ranks together.
};

/// The near misses among `files`, nearest kind first, at most two of each kind. `looked_for` are
/// paths where the engine looks.
std::vector<Trap> find_traps(const TableName& wanted, Engine engine,
                             const std::vector<std::string>& looked_for, const LayerFacts& layer,
                             const std::vector<TableFile>& files);

/// Whether two devices' names in files seem to mean the same chip: equal but for case and the
/// maker's name, or alike up to the first word with a digit ("NVIDIA_H200" and "NVIDIA_H200_NVL").
bool is_near_device(const std::string& a, const std::string& b);

}  // namespace moetune::exchange
