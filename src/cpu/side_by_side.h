// Items of 32 rows put side by side: item j of row r goes to place 32 j + r. What packing weights
// consists of, in registers of 16 bytes, which every x86-64 processor has.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {

typedef uint64_t Longs __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));
typedef uint16_t Halves __attribute__((vector_size(16)));

template <typename Vector>
Vector load_vector(const uint8_t* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

/// Four rows of four words as columns: column i holds word i of each row.
struct Columns {
  Longs column[4];

  explicit Columns(const Words* rows) {
    const Words low01 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
    const Words low23 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    const Words high01 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    const Words high23 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    column[0] = __builtin_shufflevector((Longs)low01, (Longs)low23, 0, 2);
    column[1] = __builtin_shufflevector((Longs)low01, (Longs)low23, 1, 3);
    column[2] = __builtin_shufflevector((Longs)high01, (Longs)high23, 0, 2);
    column[3] = __builtin_shufflevector((Longs)high01, (Longs)high23, 1, 3);
  }
  /// To `out`, and each further one `pitch` bytes on.
  void store(uint8_t* out, int64_t pitch) const {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) std::memcpy(out + i * pitch, &column[i], sizeof column[i]);
  }
};

/// Words of four bytes of a full panel's rows, `words` (a multiple of 4) from `offset` bytes on:
/// to out + 128 * j + 4 * r. `change` is applied to 16 bytes of a row beforehand.
template <typename Change>
void put_words_side_by_side(const uint8_t* const (&rows)[kPanelRows], int64_t offset, int64_t words,
                            uint8_t* out, Change change) {
  constexpr int64_t kPitch = kPanelRows * 4;
  for (int64_t word = 0; word < words; word += 4, out += 4 * kPitch) {
    for (int row = 0; row < kPanelRows; row += 4) {
      Words in[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        in[i] = (Words)change(load_vector<Longs>(rows[row + i] + offset + 4 * word));
      Columns(in).store(out + 4 * row, kPitch);
    }
  }
}

/// The same with items of two bytes, a multiple of 8 of them: to out + 64 * j + 2 * r.
inline void put_halves_side_by_side(const uint8_t* const (&rows)[kPanelRows], int64_t offset,
                                    int64_t halves, uint8_t* out) {
  constexpr int64_t kPitch = kPanelRows * 2;
  for (int64_t half = 0; half < halves; half += 8, out += 8 * kPitch) {
    for (int row = 0; row < kPanelRows; row += 8) {
      Words pairs[8];  // Of rows 2 i and 2 i + 1: items 0 to 3, then 4 to 7.
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto a = load_vector<Halves>(rows[row + 2 * i] + offset + 2 * half);
        const auto b = load_vector<Halves>(rows[row + 2 * i + 1] + offset + 2 * half);
        pairs[i] = (Words)__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        pairs[4 + i] = (Words)__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
      }
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part) {
        Columns(pairs + 4 * part).store(out + 4 * part * kPitch + 2 * row, kPitch);
      }
    }
  }
}

}  // namespace moetune::cpu
