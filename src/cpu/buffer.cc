#include "cpu/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "base/system_error.h"

namespace moetune::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<Buffer> Buffer::allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  const bool huge = bytes >= kHugePage;
  const size_t slack = huge ? kHugePage : 0;
  const size_t rounded = huge ? (bytes + kHugePage - 1) / kHugePage * kHugePage : bytes;
  void* mapping = MAP_FAILED;
  if (bytes < std::numeric_limits<size_t>::max() / 2)
    mapping =
        mmap(nullptr, rounded + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return Error{ErrorCode::kOutOfMemory,
                 fmt::format("cannot allocate {} bytes: {}", bytes, error_text(errno)),
                 "Free memory, or choose a smaller problem."};
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t aligned = huge ? (address + kHugePage - 1) / kHugePage * kHugePage : address;
  buffer.mapping_ = mapping;
  buffer.mapped_bytes_ = rounded + slack;
  buffer.data_ = reinterpret_cast<uint8_t*>(aligned);
  buffer.bytes_ = bytes;
  // A refusal costs speed only.
  if (huge) (void)madvise(buffer.data_, rounded, MADV_HUGEPAGE);
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace moetune::cpu
