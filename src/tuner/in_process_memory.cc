#include "tuner/in_process_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/hash.h"
#include "base/status_macros.h"

namespace moetune {
namespace {

uint64_t hash_of(const void* data, size_t bytes) {
  return hash64(std::string_view(static_cast<const char*>(data), bytes));
}

}  // namespace

Result<GuardedBuffer> GuardedBuffer::make(Device& device, size_t bytes) {
  MOETUNE_ASSIGN_OR_RETURN(auto memory, device.allocate(bytes + 2 * kBand));
  GuardedBuffer buffer(std::move(memory), bytes);
  MOETUNE_RETURN_IF_ERROR(device.fill(buffer.band(false), kBandByte, kBand));
  MOETUNE_RETURN_IF_ERROR(device.fill(buffer.band(true), kBandByte, kBand));
  return buffer;
}

Status GuardedBuffer::resize(Device& device, size_t bytes) {
  bytes_ = bytes;
  return device.fill(band(true), kBandByte, kBand);
}

void* GuardedBuffer::band(bool after) const {
  return static_cast<std::byte*>(memory_->data()) + (after ? kBand + bytes_ : 0);
}

Result<std::string> GuardedBuffer::damage(Device& device) const {
  std::string found;
  for (bool after : {false, true}) {
    std::array<uint8_t, kBand> bytes;
    MOETUNE_RETURN_IF_ERROR(device.download(bytes.data(), band(after), kBand));
    if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == kBandByte; })) continue;
    MOETUNE_RETURN_IF_ERROR(device.fill(band(after), kBandByte, kBand));
    found = after ? "past the end of" : "before the start of";
  }
  return found;
}

Result<std::unique_ptr<GuardedArguments>> GuardedArguments::place(Device& device,
                                                                  const Tensors& host,
                                                                  int outputs) {
  auto placed = std::unique_ptr<GuardedArguments>(new GuardedArguments);
  const size_t inputs = host.size() - static_cast<size_t>(outputs);
  for (size_t i = 0; i < host.size(); ++i) {
    Tensor tensor = host[i];
    MOETUNE_ASSIGN_OR_RETURN(auto buffer, GuardedBuffer::make(device, tensor.bytes()));
    tensor.data = buffer.data();
    if (i < inputs) {
      MOETUNE_RETURN_IF_ERROR(device.upload(tensor.data, host[i].data, tensor.bytes()));
      placed->input_hashes_.push_back(hash_of(host[i].data, tensor.bytes()));
    }
    placed->tensors_.push_back(std::move(tensor));
    placed->buffers_.push_back(std::move(buffer));
  }
  return placed;
}

Status GuardedArguments::poison_outputs(Device& device) const {
  for (size_t i = inputs(); i < tensors_.size(); ++i) {
    MOETUNE_RETURN_IF_ERROR(device.fill(tensors_[i].data, 0xFF, tensors_[i].bytes()));
  }
  return {};
}

Result<std::string> GuardedArguments::damage(Device& device) const {
  std::string found;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    MOETUNE_ASSIGN_OR_RETURN(const std::string side, buffers_[i].damage(device));
    if (!side.empty()) found = fmt::format("wrote {} {}", side, tensors_[i].name);
  }
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < inputs(); ++i) {
    bytes.resize(tensors_[i].bytes());
    MOETUNE_RETURN_IF_ERROR(device.download(bytes.data(), tensors_[i].data, bytes.size()));
    if (hash_of(bytes.data(), bytes.size()) != input_hashes_[i]) {
      found = fmt::format("changed its input {}", tensors_[i].name);
    }
  }
  return found;
}

Status GuardedArguments::restore_inputs(Device& device, const Tensors& host) const {
  for (size_t i = 0; i < inputs(); ++i) {
    MOETUNE_RETURN_IF_ERROR(device.upload(tensors_[i].data, host[i].data, tensors_[i].bytes()));
  }
  return {};
}

Status GuardedArguments::fetch_rows(Device& device, std::span<const int64_t> rows,
                                    CheckOutput& out) const {
  for (size_t i = inputs(); i < tensors_.size(); ++i) {
    const Tensor& whole = tensors_[i];
    const int64_t height = whole.shape.empty() ? 1 : whole.shape[0];
    const size_t row_bytes = height == 0 ? 0 : whole.bytes() / static_cast<size_t>(height);
    std::vector<std::byte> bytes(row_bytes * rows.size());
    for (const int64_t row : rows) {
      if (row >= 0 && row < height) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("row {} of {}, which has {} rows", row, whole.name, height)};
    }
    // Rows that follow each other come in one piece.
    for (size_t r = 0, count = 1; r < rows.size(); r += count) {
      for (count = 1; r + count < rows.size() && rows[r + count] == rows[r + count - 1] + 1;)
        ++count;
      const auto* from = whole.as<const std::byte>() + row_bytes * static_cast<size_t>(rows[r]);
      MOETUNE_RETURN_IF_ERROR(
          device.download(bytes.data() + r * row_bytes, from, count * row_bytes));
    }
    Tensor part = whole;
    if (!part.shape.empty()) part.shape[0] = static_cast<int64_t>(rows.size());
    out.storage.push_back(std::move(bytes));
    part.data = out.storage.back().data();
    out.outputs.push_back(std::move(part));
  }
  return {};
}

}  // namespace moetune
