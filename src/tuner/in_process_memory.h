// Device memory that notices when somebody writes beside it, and the arguments of one call in such
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "moetune/measuring.h"

namespace moetune {

/// A buffer between two bands of known bytes. The second band begins at the very byte after the
/// buffer's last.
class GuardedBuffer {
 public:
  static Result<GuardedBuffer> make(Device& device, size_t bytes);

  void* data() const { return static_cast<std::byte*>(memory_->data()) + kBand; }
  size_t bytes() const { return bytes_; }
  size_t capacity() const { return memory_->bytes() - 2 * kBand; }

  /// Makes the buffer end after `bytes` <= capacity(), and puts the second band there.
  Status resize(Device& device, size_t bytes);

  /// "before the start of", "past the end of", or empty where both bands are whole. Repairs what it
  /// finds.
  Result<std::string> damage(Device& device) const;

 private:
  static constexpr size_t kBand = 256;  // Keeps the device's alignment for the buffer between.
  static constexpr uint8_t kBandByte = 0xA7;

  GuardedBuffer(std::unique_ptr<DeviceBuffer> memory, size_t bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}

  void* band(bool after) const;

  std::unique_ptr<DeviceBuffer> memory_;
  size_t bytes_ = 0;
};

/// Inputs and outputs of one call, on the device. Not copyable: `tensors()` is referred to by calls
/// in flight.
class GuardedArguments {
 public:
  /// Places `host` (inputs with data, then `outputs` tensors without) on the device.
  static Result<std::unique_ptr<GuardedArguments>> place(Device& device, const Tensors& host,
                                                         int outputs);
  GuardedArguments(const GuardedArguments&) = delete;
  GuardedArguments& operator=(const GuardedArguments&) = delete;

  const Tensors& tensors() const { return tensors_; }

  /// Fills every output with the bytes 0xFF, which are NaN in every floating-point format.
  Status poison_outputs(Device& device) const;

  /// What a call damaged ("wrote past the end of output", "changed its input hidden"), or empty.
  /// Bands are repaired.
  Result<std::string> damage(Device& device) const;

  /// Puts the inputs back as they were; `host` as it was given to place().
  Status restore_inputs(Device& device, const Tensors& host) const;

  /// Copies the given rows of each output, one after the other, into `storage` and describes them
  /// in `outputs`.
  Status fetch_rows(Device& device, std::span<const int64_t> rows, CheckOutput& out) const;

 private:
  GuardedArguments() = default;

  size_t inputs() const { return input_hashes_.size(); }

  Tensors tensors_;
  std::vector<GuardedBuffer> buffers_;
  std::vector<uint64_t> input_hashes_;
};

}  // namespace moetune
