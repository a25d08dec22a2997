// The serving engines whose Triton kernels take their tactics from JSON files, and what differs
// between them. docs/exchange.md says which versions each fact was read from.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::exchange {

enum class Engine : uint8_t { kVllm, kSglang };

/// A released version: "0.11.1", "0.5.8.post1" and "3.4.0+git1" are known by their leading numbers.
struct Version {
  std::vector<int> numbers;  ///< {0, 11, 1}; empty: not known.

  bool known() const { return !numbers.empty(); }
  /// "0.11.1"; "" where it is not known.
  std::string text() const;
  std::strong_ordering operator<=>(const Version&) const = default;
};

/// Nothing where `text` does not begin with numbers that have dots between them, or has more than
/// eight of these.
std::optional<Version> parse_version(std::string_view text);

/// What an engine's file may say of one number of tokens: the engine hands it to its kernel as it
/// is, so that a name the kernel does not have ends the server.
struct EngineParameter {
  enum class Kind : uint8_t { kNumber, kSwitch, kWord };
  const char* name;
  Kind kind = Kind::kNumber;
  bool is_required = false;
};

/// Constants of an engine. Never changes; any thread.
struct EngineFacts {
  const char* title;            ///< "vLLM"
  const char* name;             ///< "vllm": of its flags, its Python package and its host.
  const char* runner;           ///< "vllm.triton": whose decisions become its files.
  const char* folder_variable;  ///< Environment variable that names a folder of the user's own.
  std::vector<EngineParameter> parameters;
};
const EngineFacts& facts_of(Engine engine);

/// The parameter of that name, or nullptr.
const EngineParameter* find_parameter(Engine engine, std::string_view name);

/// How the engine writes a device's name in a file's name: "NVIDIA H200 NVL" becomes "NVIDIA_H200"
/// for vLLM from 0.11.1 on, "NVIDIA_H200_NVL" before and for SGLang. A version that is not known
/// counts as the newest. Takes names with spaces or underscores.
std::string device_file_name(Engine engine, std::string_view device, const Version& version);

/// Whether a member "triton_version" may stand beside the numbers of tokens. Engines that do not
/// know it stop at it, as it is no number.
bool may_name_triton(Engine engine, const Version& version);

}  // namespace moetune::exchange
