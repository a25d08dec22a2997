// Memory for packed weights and workspaces: cache-line aligned, and in huge pages where the system
// grants them. Weights are streamed once per layer, so with 4 KiB pages every 64 cache lines would
// cost an address translation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "moetune/result.h"

namespace moetune::cpu {

/// Owns zeroed memory. Move-only.
class Buffer {
 public:
  /// `bytes` of zeros, 64-byte aligned; from 2 MiB on aligned to 2 MiB with huge pages asked for.
  /// kOutOfMemory when the system has no address space or memory left; pages are physically taken
  /// on first touch.
  static Result<Buffer> allocate(size_t bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace moetune::cpu
