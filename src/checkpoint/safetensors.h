// One file of tensors in the safetensors format (https://github.com/huggingface/safetensors): eight
// bytes with the length of a JSON header, the header, and the tensors' bytes one after the other.
//
// The file is mapped, and nothing in it is believed: every tensor's bytes are inside the file, are
// nobody else's, and are as many as its shape and type need, or the file does not open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "moetune/result.h"
#include "moetune/tensor.h"

namespace moetune::checkpoint {

/// Headers beyond this are refused, as by the format's own library.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

class SafetensorsFile;

/// A tensor as it lies in a file. Dense, row-major, little-endian; at any address, so that values
/// of more than a byte may be misaligned.
struct StoredTensor {
  std::string name;
  std::string type;                  ///< As the file writes it: "BF16", "F8_E4M3", ...
  std::vector<int64_t> shape;        ///< Outermost first. Empty for a single value.
  std::span<const std::byte> bytes;  ///< In the mapped file.
  const SafetensorsFile* file = nullptr;

  /// "model.safetensors: "a.weight" is BF16 [768, 2048]": begins messages.
  std::string text() const;
};

/// Bits of one value of a type by its name in the format; empty for one that this version does not
/// know, whose size is then not checked.
std::optional<int> stored_bits(std::string_view type);

/// One mapped file. Immutable: may be read from several threads at once. A file that is shortened
/// while it is open is beyond what is caught (base/mapped_file.h).
class SafetensorsFile {
 public:
  /// kNotFound, kIo or kInvalidArgument as MappedFile::open(); kParse, naming file, tensor, and
  /// what was expected, for a header that is too long, malformed, or says what cannot be.
  static Result<std::unique_ptr<const SafetensorsFile>> open(const std::string& path);

  const std::string& path() const { return path_; }
  /// In the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null where there is none of that name. Valid as long as this lives.
  const StoredTensor* find(std::string_view name) const;
  /// The pages of these bytes of a tensor are not needed for now.
  void release(std::span<const std::byte> bytes) const { mapping_.release(bytes); }

 private:
  SafetensorsFile(std::string path, MappedFile mapping)
      : path_(std::move(path)), mapping_(std::move(mapping)) {}
  Status read();

  std::string path_;
  MappedFile mapping_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string_view, size_t> by_name_;
};

}  // namespace moetune::checkpoint
