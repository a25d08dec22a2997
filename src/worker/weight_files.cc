// Weights that travel: every tensor of all chunks stacked in one file in memory.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/host.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "worker/worker_host.h"

namespace moetune {
namespace {

size_t bytes_of(const Tensors& tensors) {
  size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

bool are_alike(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.name == y.name && x.type == y.type && x.shape == y.shape;
  });
}

Status write_at(const Descriptor& file, const void* data, size_t bytes, size_t offset) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(file.get(), from, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return Error{errno == ENOSPC || errno == ENOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kIo,
                   fmt::format("cannot keep weights in memory: {}", error_text(errno))};
    }
    from += written;
    offset += static_cast<size_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return {};
}

// A file in memory that grows beyond what there is ends its writer without a word.
Status check_room(size_t bytes) {
  const size_t available = host_available_memory_bytes();
  if (available == 0 || bytes <= available - available / 8) return {};
  return Error{ErrorCode::kOutOfMemory,
               fmt::format("the layer's weights take {} MiB of memory to hand over; free: {} MiB",
                           bytes >> 20, available >> 20),
               "take a smaller share with --ep or --tp"};
}

Result<WeightFiles::File> stack(WeightSource& source) {
  WeightFiles::File stacked;
  const int64_t chunks = source.chunks();
  for (int64_t index = 0; index < chunks; ++index) {
    MOETUNE_ASSIGN_OR_RETURN(const Tensors chunk, source.chunk(index));
    if (index == 0) {
      const size_t bytes = bytes_of(chunk) * static_cast<size_t>(chunks);
      MOETUNE_RETURN_IF_ERROR(check_room(bytes));
      stacked.file = Descriptor(::memfd_create("moetune-weights", MFD_CLOEXEC));
      if (!stacked.file.ok() || ::ftruncate(stacked.file.get(), static_cast<off_t>(bytes)) != 0)
        return Error{ErrorCode::kIo, "cannot make a file in memory: " + error_text(errno)};
      stacked.tensors = chunk;
    } else if (!are_alike(chunk, stacked.tensors)) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("weights of chunk {} have other shapes than those of the first", index)};
    }
    size_t begin = 0;
    for (const Tensor& tensor : chunk) {
      const size_t bytes = tensor.bytes();
      MOETUNE_RETURN_IF_ERROR(
          write_at(stacked.file, tensor.data, bytes, begin + static_cast<size_t>(index) * bytes));
      begin += static_cast<size_t>(chunks) * bytes;
    }
  }
  for (Tensor& tensor : stacked.tensors) {
    tensor.shape.insert(tensor.shape.begin(), chunks);
    tensor.data = nullptr;
  }
  return stacked;
}

}  // namespace

Result<const WeightFiles::File*> WeightFiles::at(Scale scale) {
  auto known = files_.find(scale);
  if (known == files_.end()) {
    MOETUNE_ASSIGN_OR_RETURN(File made, stack(bench_.weights(scale)));
    known = files_.emplace(scale, std::move(made)).first;
  }
  return &known->second;
}

}  // namespace moetune
