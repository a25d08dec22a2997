// Where an engine looks for its tuning files, and what it finds there.
//
// vLLM: VLLM_TUNED_CONFIG_FOLDER/NAME, then configs/NAME in its package. SGLang:
// configs/triton_X_Y_Z/NAME in SGLANG_MOE_CONFIG_DIR or, where that is unset, in its package; where
// that is missing, the same name in the folders of other versions of Triton, newest first.
#pragma once

#include <string>
#include <vector>

#include "exchange/engine.h"
#include "exchange/table_name.h"
#include "moetune/result.h"

namespace moetune::exchange {

/// An engine as it is installed, and the folder of the user's own. A value type.
struct Installation {
  Engine engine = Engine::kVllm;
  std::string user_folder;     ///< What the engine's variable names; empty: unset.
  std::string package_folder;  ///< vLLM: configs of its package; SGLang: the folder that holds
                               ///< configs. Empty: not known.
  Version engine_version;      ///< May not be known.
  Version triton_version;      ///< May not be known.

  /// Folders in the order in which the engine looks, without those of other versions of Triton.
  std::vector<std::string> folders() const;
};

/// `path` is an engine's package, a folder that holds it (site-packages), or a folder of the user's
/// own, which is what everything else counts as. Versions come from what pip left beside the
/// package. kNotFound where there is no such folder, kInvalidArgument where both `path` and
/// `user_folder` are the user's own.
Result<Installation> find_installation(Engine engine, const std::string& path,
                                       const std::string& user_folder);

/// "configs/triton_3_4_0" of SGLang's folder `root`.
std::string triton_folder(const std::string& root, const Version& triton);

/// What an engine does when it looks for a file.
struct Lookup {
  enum class Outcome : uint8_t {
    kFound,
    kOtherTriton,  ///< SGLang: found for another version of Triton, with a warning.
    kDefault,      ///< Not found: the engine's default, which knows no device, runs.
    kBroken,       ///< Found, and the engine or its kernel would end at it.
  };
  Outcome outcome = Outcome::kDefault;
  std::string path;                     ///< Of what was found.
  std::vector<std::string> looked_for;  ///< Paths, in order, up to the one that was found.
  std::string problem;                  ///< kBroken: what is wrong with it.
};
const char* to_string(Lookup::Outcome outcome);

/// Looks as the engine would. Any file system; what cannot be read counts as broken.
Lookup look_up(const Installation& installation, const TableName& name);

/// A tuning file by its name; nobody looked into it.
struct TableFile {
  std::string path;
  TableName name;
};

/// Files with names of tuning files in and below these folders, four levels deep, sorted by path;
/// at most 20000 entries of folders are looked at. Missing folders have none.
std::vector<TableFile> list_tables(const std::vector<std::string>& folders);

}  // namespace moetune::exchange
