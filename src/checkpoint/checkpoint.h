// A model folder's tensors by name: one safetensors file, or several and the index that says which
// of them holds what.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "checkpoint/safetensors.h"
#include "moetune/result.h"

namespace moetune::checkpoint {

/// Opens files when something in them is asked for, and keeps them open. Not thread-safe; what it
/// hands out may be read by several threads, as long as it lives.
class Checkpoint {
 public:
  /// Reads `model.safetensors.index.json`, or opens `model.safetensors` where there is no index.
  /// kNotFound where the folder has neither, kParse for an index that makes no sense, errors of
  /// SafetensorsFile::open().
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  /// Whether the folder claims to have such a tensor. Opens no file.
  bool has(std::string_view name) const { return shard_of_.contains(name); }
  /// Whether it claims to have one whose name begins so.
  bool has_any(std::string_view prefix) const;
  /// kNotFound where there is none of that name, or where the file that should hold it is missing
  /// or does not: the message names both.
  Result<const StoredTensor*> find(std::string_view name);

 private:
  explicit Checkpoint(std::string folder) : folder_(std::move(folder)) {}
  Status read_index(const std::string& path);
  Result<const SafetensorsFile*> shard(const std::string& file_name);

  std::string folder_;
  std::set<std::string> shard_names_;
  std::map<std::string, const std::string*, std::less<>> shard_of_;  // into shard_names_
  std::map<std::string, std::unique_ptr<const SafetensorsFile>> shards_;
};

}  // namespace moetune::checkpoint
