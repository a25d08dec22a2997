// SHA-256 (FIPS 180-4), for names of cache entries: what is found under a name was made from
// exactly the same input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moetune::cuda {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  Sha256& add(std::span<const std::byte> bytes);
  /// Adds a text and its length, so that ("ab", "c") and ("a", "bc") differ.
  Sha256& add_text(std::string_view text);
  /// Ends the message; call once.
  Digest digest();

 private:
  void add_block(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_ = {};
  size_t buffered_ = 0;
  uint64_t bytes_ = 0;
};

/// 64 lower-case hexadecimal digits.
std::string to_hex(const Sha256::Digest& digest);

}  // namespace moetune::cuda
