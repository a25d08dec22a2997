// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace moetune {

/// Owns a descriptor; -1 is none. Thread-compatible.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { reset(); }

  bool ok() const { return number_ >= 0; }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  void reset() {
    if (ok()) ::close(release());
  }

 private:
  int number_ = -1;
};

}  // namespace moetune
