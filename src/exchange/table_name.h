// Names of the engines' files, which say what a file is for:
// "E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exchange/engine.h"
#include "moetune/moe_spec.h"
#include "moetune/result.h"

namespace moetune::exchange {

/// What a file's name says. A value type.
struct TableName {
  int64_t experts = 0;  ///< E: of one rank, with shared experts that were fused into the layer.
  int64_t intermediate = 0;  ///< N: of one rank, columns of w2 (rows of gate).
  std::string device;        ///< "NVIDIA_H200"
  std::string dtype;         ///< "fp8_w8a8", ...; empty for bf16 and fp16.
  std::optional<std::array<int64_t, 2>> block_shape;  ///< Of the weights' scales: rows, columns.
  bool per_channel = false;  ///< SGLang: a scale for each row of the weights.
  bool is_down = false;      ///< SGLang: for the second GEMM alone.

  bool operator==(const TableName&) const = default;

  /// The file's name, as the engine spells it.
  std::string text(Engine engine) const;
  /// "E=256, N=256, fp8_w8a8, blocks of 128x128": without the device.
  std::string shape_text() const;
};

/// Reads a name, or the last part of a path, however the engines spell it. kParse where it is none
/// of theirs, or has a part that is not known here.
Result<TableName> parse_table_name(std::string_view path);

/// The name that an engine looks for when it runs that layer on that device. kUnsupported, with the
/// reason, where its Triton kernel does not run such weights.
Result<TableName> table_name_of(const FusedMoeSpec& spec, Engine engine, const std::string& device,
                                const Version& version);

}  // namespace moetune::exchange
