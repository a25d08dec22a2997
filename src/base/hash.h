// A 64-bit hash for tables in memory and for short names of files. Not for adversaries, and stable
// between releases because file names are made with it.
//
// Eight bytes at a time: state = mix(state ^ word), where mix() folds the 128-bit product with an
// odd constant, the step that wyhash and its relatives use
// (https://github.com/wangyi-fudan/wyhash).
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace moetune {

class Hash64 {
 public:
  constexpr Hash64() = default;

  /// Adds a number. Order matters: (1, 2) and (2, 1) differ.
  Hash64& add(uint64_t word) {
    state_ = mix(state_ ^ word, kMultiplier);
    return *this;
  }

  /// Adds a text and its length, so that ("ab", "c") and ("a", "bc") differ.
  Hash64& add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (; text.size() >= sizeof(uint64_t); text.remove_prefix(sizeof(uint64_t))) {
      add(load(text.data(), sizeof(uint64_t)));
    }
    return text.empty() ? *this : add(load(text.data(), text.size()));
  }

  uint64_t value() const { return mix(state_, kFinisher); }

 private:
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio.
  static constexpr uint64_t kFinisher = 0xD1B54A32D192ED03;    // Odd, with as many ones as zeros.

  static uint64_t load(const char* bytes, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, count);
    return word;
  }

  // The sum keeps a zero in either operand from wiping out the state.
  static uint64_t mix(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return (static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) + a;
  }

  uint64_t state_ = 0x2545F4914F6CDD1D;
};

inline uint64_t hash64(std::string_view text) { return Hash64().add(text).value(); }

}  // namespace moetune
