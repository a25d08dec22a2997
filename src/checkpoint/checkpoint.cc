#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/status_macros.h"
#include "checkpoint/json_events.h"

namespace moetune::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kOnlyFileName = "model.safetensors";

/// The largest models have a quarter of a million tensors, in some twenty megabytes.
constexpr size_t kMaxIndexBytes = 100'000'000;

/// {"metadata": {...}, "weight_map": {"tensor": "file", ...}}
class IndexReader final : public JsonListener {
 public:
  std::map<std::string, std::string> files;
  bool has_map = false;

  Problem on_open(bool is_array) override {
    if (depth() == 1 && key(1) == kMap) {
      if (is_array || has_map) return "weight_map is not one object";
      has_map = true;
    }
    return in_map() ? wrong(is_array ? "an array" : "an object") : Problem();
  }
  Problem on_close() override { return {}; }
  Problem on_string(std::string& text) override {
    if (!in_map()) return {};
    // The file that it names is opened: nothing outside of this folder may be.
    if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos) {
      return fmt::format("weight_map: {}: {} is no name of a file in the folder", in_quotes(key(2)),
                         in_quotes(text));
    }
    if (!files.emplace(key(2), std::move(text)).second)
      return fmt::format("weight_map: {} is there twice", in_quotes(key(2)));
    return {};
  }
  Problem on_whole(uint64_t) override { return in_map() ? wrong("a number") : Problem(); }
  Problem on_other(const char* kind) override { return in_map() ? wrong(kind) : Problem(); }

 private:
  static constexpr std::string_view kMap = "weight_map";
  bool in_map() const { return depth() >= 2 && key(1) == kMap; }
  Problem wrong(const char* kind) const {
    return fmt::format("weight_map: {}: expected the name of a file, found {}", in_quotes(key(2)),
                       kind);
  }
};

bool may_exist(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || error;  // What cannot be examined is reported when it is read.
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& folder) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint(folder));
  const fs::path index = fs::path(folder) / kIndexName;
  if (may_exist(index)) {
    MOETUNE_RETURN_IF_ERROR(checkpoint->read_index(index.string()));
    return checkpoint;
  }
  if (!may_exist(fs::path(folder) / kOnlyFileName)) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{}: no weights: neither {} nor {}", folder, kIndexName, kOnlyFileName),
        "name a model's folder with its weights as safetensors"};
  }
  const std::string& name = *checkpoint->shard_names_.emplace(kOnlyFileName).first;
  MOETUNE_ASSIGN_OR_RETURN(const SafetensorsFile* file, checkpoint->shard(name));
  for (const StoredTensor& tensor : file->tensors())
    checkpoint->shard_of_.emplace(tensor.name, &name);
  return checkpoint;
}

Status Checkpoint::read_index(const std::string& path) {
  MOETUNE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
  IndexReader reader;
  MOETUNE_RETURN_IF_ERROR(read_json_events(text, path, reader));
  if (!reader.has_map) {
    return Error{ErrorCode::kParse, fmt::format("{}: no weight_map", path),
                 "it says which file holds which tensor; fetch the file again"};
  }
  for (auto& [tensor, file] : reader.files)
    shard_of_.emplace(tensor, &*shard_names_.insert(std::move(file)).first);
  return {};
}

bool Checkpoint::has_any(std::string_view prefix) const {
  const auto first = shard_of_.lower_bound(prefix);
  return first != shard_of_.end() && first->first.starts_with(prefix);
}

Result<const SafetensorsFile*> Checkpoint::shard(const std::string& file_name) {
  std::unique_ptr<const SafetensorsFile>& file = shards_[file_name];
  if (!file) {
    MOETUNE_ASSIGN_OR_RETURN(file, SafetensorsFile::open((fs::path(folder_) / file_name).string()));
  }
  return file.get();
}

Result<const StoredTensor*> Checkpoint::find(std::string_view name) {
  const auto known = shard_of_.find(name);
  if (known == shard_of_.end()) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: no tensor {}", folder_, in_quotes(name)),
                 "is this the checkpoint that config.json belongs to, complete?"};
  }
  const std::string& file_name = *known->second;
  Result<const SafetensorsFile*> file = shard(file_name);
  if (!file.ok()) {
    Error error = std::move(file).error();
    error.message += fmt::format(" (it should hold {}{})", in_quotes(name),
                                 error.code == ErrorCode::kNotFound ? ", says the index" : "");
    if (error.code == ErrorCode::kNotFound) error.hint = "fetch the missing file";
    return error;
  }
  if (const StoredTensor* tensor = (*file)->find(name)) return tensor;
  return Error{ErrorCode::kNotFound,
               fmt::format("{}: no tensor {}, which {} says is there", (*file)->path(),
                           in_quotes(name), kIndexName),
               "index and files are of different versions: fetch them again"};
}

}  // namespace moetune::checkpoint
