// What works on rows: packing activations, the epilogues of both GEMMs, and the combination of the
// experts' rows. Included by the kernel files as gemm_body.h is; elementwise arithmetic is in the
// compiler's vector types, whose operators every Simd::Vec has.
#pragma once

#include "cpu/kernels/kernel_table.h"

namespace moetune::cpu {
namespace {

constexpr int kLanes = Simd::kLanes;
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
typedef uint32_t Quad __attribute__((vector_size(16)));
typedef uint16_t HalfOct __attribute__((vector_size(16)));
typedef uint64_t Longs __attribute__((vector_size(16)));

// ---- Packing activations ----

// Four items of one row. bf16 behind 16 zero bits is f32.
inline Quad load_items(const uint16_t* p) {
  if constexpr (Simd::kValuesPerItem == 2) {
    Quad pairs;
    __builtin_memcpy(&pairs, p, sizeof(pairs));
    return pairs;
  } else {
    uint64_t four;
    __builtin_memcpy(&four, p, sizeof(four));
    const HalfOct halves = reinterpret_cast<HalfOct>(Longs{four, 0});
    return reinterpret_cast<Quad>(
        __builtin_shufflevector(HalfOct{}, halves, 0, 8, 1, 9, 2, 10, 3, 11));
  }
}

inline uint32_t item_at(const uint16_t* p, int64_t values_left) {
  if (Simd::kValuesPerItem == 1) return static_cast<uint32_t>(p[0]) << 16;
  return p[0] | (values_left > 1 ? static_cast<uint32_t>(p[1]) << 16 : 0u);
}

inline void transpose(Quad (&q)[4]) {
  const Quad a = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5);
  const Quad b = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5);
  const Quad c = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
  const Quad d = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
  q[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  q[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  q[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  q[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// Four items of every row. A last group of fewer than four rows repeats its last one: what that
// writes too much lies where the next item is about to be written.
template <int M>
inline __attribute__((always_inline)) void pack_four_items(const uint16_t* const (&rows)[M],
                                                           int64_t k, uint32_t* out) {
  constexpr int kGroups = (M + 3) / 4;
  Quad columns[kGroups][4];
#pragma GCC unroll 3
  for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      columns[g][i] = load_items(rows[4 * g + i < M ? 4 * g + i : M - 1] + k);
    if constexpr (M > 1) transpose(columns[g]);
  }
  if constexpr (M == 1) {
    __builtin_memcpy(out, &columns[0][0], sizeof(Quad));
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 3
      for (int g = 0; g < kGroups; ++g)
        __builtin_memcpy(out + i * M + 4 * g, &columns[g][i], sizeof(Quad));
  }
}

template <int M>
void pack_tokens(const uint16_t* const* rows, int tokens, int64_t first_k, int64_t values,
                 uint32_t* out) {
  if (tokens != M) {
    if constexpr (M > 1) pack_tokens<M - 1>(rows, tokens, first_k, values, out);
    return;
  }
  const uint16_t* at[M];
  for (int m = 0; m < M; ++m) at[m] = rows[m] + first_k;
  constexpr int64_t kStep = 4 * Simd::kValuesPerItem;
  int64_t k = 0;
  for (; k + kStep <= values; k += kStep, out += 4 * M) pack_four_items<M>(at, k, out);
  const int64_t padded = (values + kBlock - 1) / kBlock * kBlock;
  for (; k < padded; k += Simd::kValuesPerItem, out += M)
    for (int m = 0; m < M; ++m) out[m] = k < values ? item_at(at[m] + k, values - k) : 0u;
}

void pack_x(const uint16_t* const* rows, int tokens, int64_t first_k, int64_t values,
            uint32_t* out) {
  pack_tokens<Simd::kMaxTile>(rows, tokens, first_k, values, out);
}

// ---- bf16 ----

inline Halves to_bf16(Floats value) {
  const Words bits = reinterpret_cast<Words>(value);
  const Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded, Halves);
}

// ---- Activations ----

inline Floats fma(Floats a, Floats b, Floats c) {
  return reinterpret_cast<Floats>(Simd::fma(reinterpret_cast<Simd::Vec>(a),
                                            reinterpret_cast<Simd::Vec>(b),
                                            reinterpret_cast<Simd::Vec>(c)));
}
inline Floats all(float value) { return Floats{} + value; }

// e^x to 2 ulp. x = n·ln 2 + r with |r| <= ln(2)/2, ln 2 in two pieces (Cody and Waite), e^r by its
// Taylor series, whose first term left out is below 6e-9, and 2^n by its exponent. Above 88.37 the
// result is infinity, below -87.3 that of -87.3 (1.2e-38); NaN stays NaN.
inline Floats exponential(Floats x) {
  x = x > 89.f ? all(89.f) : x;
  x = x < -87.3f ? all(-87.3f) : x;
  const Floats magic = all(0x1.8p23f);
  const Floats shifted = fma(x, all(0x1.715476p0f), magic);
  const Floats n = shifted - magic;
  Floats r = fma(n, all(-0x1.62e400p-1f), x);
  r = fma(n, all(-0x1.7f7d1cp-20f), r);
  constexpr float kTaylor[] = {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f, 1.f, 1.f};
  Floats sum = all(1.f / 5040);
  for (const float coefficient : kTaylor) sum = fma(sum, r, all(coefficient));
  const Words exponent = (reinterpret_cast<Words>(shifted) - reinterpret_cast<Words>(magic) + 127u)
                         << 23;
  return sum * reinterpret_cast<Floats>(exponent);
}

inline Floats sigmoid(Floats x) { return 1.f / (1.f + exponential(-x)); }

template <Epilogue kind>
inline Floats activation(Floats gate, Floats up) {
  if constexpr (kind == Epilogue::kSwiGlu) {
    return gate * sigmoid(gate) * up;
  } else if constexpr (kind == Epilogue::kSwiGluClamped) {
    gate = gate > 7.f ? all(7.f) : gate;
    up = up > 7.f ? all(7.f) : up;
    up = up < -7.f ? all(-7.f) : up;
    return gate * sigmoid(1.702f * gate) * (up + 1.f);
  } else if constexpr (kind == Epilogue::kRelu2) {
    const Floats positive = gate < 0.f ? all(0.f) : gate;
    return positive * positive;
  } else {
    return gate + up;
  }
}

inline Floats load_floats(const float* p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

inline Floats scaled_row(const float* c, int row, float scale, const float* bias) {
  const Floats value = load_floats(c + row) * scale;
  return bias == nullptr ? value : value + load_floats(bias + row);
}

template <Epilogue kind>
void activate_rows(const float* c, int tokens, float gate_scale, float up_scale, const float* bias,
                   uint16_t* out, int64_t stride) {
  constexpr int kOutputs = kind == Epilogue::kRelu2 ? kPanelRows : kHalfRows;
  for (int m = 0; m < tokens; ++m, c += kPanelRows, out += stride)
    for (int i = 0; i < kOutputs; i += kLanes) {
      const Floats gate = scaled_row(c, i, gate_scale, bias);
      const Floats up =
          kind == Epilogue::kRelu2 ? gate : scaled_row(c, kHalfRows + i, up_scale, bias);
      const Halves h = to_bf16(activation<kind>(gate, up));
      __builtin_memcpy(out + i, &h, sizeof(h));
    }
}

void activate(Epilogue kind, const float* c, int tokens, float gate_scale, float up_scale,
              const float* bias, uint16_t* out, int64_t stride) {
  const auto rows = [&](auto activate_kind) {
    activate_kind(c, tokens, gate_scale, up_scale, bias, out, stride);
  };
  switch (kind) {
    case Epilogue::kSwiGlu: return rows(activate_rows<Epilogue::kSwiGlu>);
    case Epilogue::kSwiGluClamped: return rows(activate_rows<Epilogue::kSwiGluClamped>);
    case Epilogue::kRelu2: return rows(activate_rows<Epilogue::kRelu2>);
    case Epilogue::kGatePlusUp: return rows(activate_rows<Epilogue::kGatePlusUp>);
  }
}

// ---- GEMM 2's rows and their combination ----

void store(const float* c, int tokens, float scale, const float* bias, const int32_t* rows,
           float* y, int64_t stride) {
  for (int m = 0; m < tokens; ++m, c += kPanelRows)
    for (int i = 0; i < kPanelRows; i += kLanes) {
      const Floats value = scaled_row(c, i, scale, bias);
      __builtin_memcpy(y + rows[m] * stride + i, &value, sizeof(value));
    }
}

inline Floats weighted_sum(const CombineArgs& args, int64_t column) {
  Floats sum = all(0.f);
  for (int i = 0; i < args.slots; ++i)
    if (args.ids[i] >= 0)
      sum = fma(load_floats(args.y + i * args.stride + column), all(args.weights[i]), sum);
  return sum;
}

// y has whole panels of columns, so a vector may be read where fewer columns are left.
void combine_bf16(const CombineArgs* args, uint16_t* out) {
  for (int64_t column = 0; column < args->columns; column += kLanes) {
    const Halves h = to_bf16(weighted_sum(*args, column));
    const int64_t left = args->columns - column;
    __builtin_memcpy(out + column, &h,
                     left < kLanes ? static_cast<size_t>(left) * sizeof(out[0]) : sizeof(h));
  }
}

void combine_f32(const CombineArgs* args, float* out) {
  for (int64_t column = 0; column < args->columns; column += kLanes) {
    const Floats sum = weighted_sum(*args, column);
    const int64_t left = args->columns - column;
    __builtin_memcpy(out + column, &sum,
                     left < kLanes ? static_cast<size_t>(left) * sizeof(out[0]) : sizeof(sum));
  }
}

// ---- Rounding activations ----

constexpr int kRoundBlock = 128;

// The nearest e4m3 value, ties to even, saturating at 448.
inline Floats round_to_e4m3(Floats x) {
  const Words bits = reinterpret_cast<Words>(x) & 0x7FFFFFFFu;
  const Floats magnitude = reinterpret_cast<Floats>(bits);
  const Words normal = (bits + 0x7FFFFu + ((bits >> 20) & 1u)) & ~0xFFFFFu;
  const Floats shift = all(24576.f);  // 1.5 * 2^14: sums have steps of 2^-9, the subnormals' own
  const Floats small = (magnitude + shift) - shift;
  Floats rounded = magnitude < 0x1p-6f ? small : reinterpret_cast<Floats>(normal);
  rounded = rounded > 448.f ? all(448.f) : rounded;
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(rounded) |
                                  (reinterpret_cast<Words>(x) & 0x80000000u));
}

inline Floats load_bf16(const uint16_t* p) {
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof(halves));
  return reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}

inline float scale_of_block(const uint16_t* in) {
  Floats largest = all(0.f);
  for (int i = 0; i < kRoundBlock; i += kLanes) {
    const Floats magnitude =
        reinterpret_cast<Floats>(reinterpret_cast<Words>(load_bf16(in + i)) & 0x7FFFFFFFu);
    largest = largest > magnitude ? largest : magnitude;
  }
  float amax = 0;
  for (int lane = 0; lane < kLanes; ++lane) amax = amax > largest[lane] ? amax : largest[lane];
  return amax == 0 ? 1 : amax / 448;
}

inline float round_block(const uint16_t* in, float given, uint16_t* codes) {
  const float scale = given == 0 ? scale_of_block(in) : given;
  for (int i = 0; i < kRoundBlock; i += kLanes) {
    const Halves h = to_bf16(round_to_e4m3(load_bf16(in + i) / scale));
    __builtin_memcpy(codes + i, &h, sizeof(h));
  }
  return scale;
}

void round_row(const uint16_t* in, uint16_t* codes, float* scales, float given, int64_t columns) {
  int64_t first = 0;
  for (; first + kRoundBlock <= columns; first += kRoundBlock)
    *scales++ = round_block(in + first, given, codes + first);
  if (first == columns) return;
  uint16_t padded[kRoundBlock] = {};
  const auto bytes = static_cast<size_t>(columns - first) * sizeof(padded[0]);
  __builtin_memcpy(padded, in + first, bytes);
  *scales = round_block(padded, given, padded);
  __builtin_memcpy(codes + first, padded, bytes);
}

}  // namespace
}  // namespace moetune::cpu
