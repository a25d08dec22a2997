// From router logits to experts and weights, and from those to the order in which the GEMMs work: tokens grouped by expert.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace moetune::kernels {

// Unsigned integers in the order of the floats.
__device__ inline u32 sortable(float x) {
  const u32 bits = __float_as_uint(x);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}
constexpr u32 kMinusInfinity = 0x007FFFFFu;  // sortable(-inf); 0 is below everything: taken already, or no expert at all
constexpr u32 kAll = 0xFFFFFFFFu;

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int i = 16; i > 0; i >>= 1) x = fmaxf(x, __shfl_xor_sync(kAll, x, i));
  return x;
}
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int i = 16; i > 0; i >>= 1) x += __shfl_xor_sync(kAll, x, i);
  return x;
}

// One warp and one token; lane l holds the experts l, l + 32, ...
template <int kPerLane>
class Router {
 public:
  __device__ Router(const RouteParams& p, int token, int lane) : p_(p), token_(token), lane_(lane) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * 32 + lane;
      score_[i] = e < p.experts ? logit(e) : -INFINITY;
    }
    if (!p.score_after_top_k) apply_score();
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * 32 + lane;
      key_[i] = e < p.experts ? sortable(score_[i] + (p.bias ? p.bias[e] : 0.0f)) : 0;
    }
  }

  // Groups are ranked by the sum of their two best keys; experts of the others count as -inf.
  __device__ void keep_best_groups() {
    const int size = p_.experts / p_.groups;
    u32 kept[kPerLane];
    u32 group_key = 0;  // of group `lane`; there are at most 32
    for (int group = 0; group < p_.groups; ++group) {
      u32 first = 0, second = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if ((i * 32 + lane_) / size != group) continue;
        second = max(second, min(first, key_[i]));
        first = max(first, key_[i]);
      }
      const u32 best = __reduce_max_sync(kAll, first);
      const int owner = __ffs(__ballot_sync(kAll, first == best)) - 1;
      const u32 next = __reduce_max_sync(kAll, lane_ == owner ? second : first);
      const float sum = unsort(best) + (size > 1 ? unsort(next) : 0.0f);
      if (lane_ == group) group_key = sortable(sum);
    }
    u32 chosen = 0;
    for (int i = 0; i < p_.top_groups; ++i) {
      const u32 best = __reduce_max_sync(kAll, group_key);
      const int group = __ffs(__ballot_sync(kAll, group_key == best)) - 1;
      chosen |= 1u << group;
      if (lane_ == group) group_key = 0;
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * 32 + lane_;
      kept[i] = e < p_.experts && !(chosen >> (e / size) & 1) ? kMinusInfinity : key_[i];
      key_[i] = kept[i];
    }
  }

  __device__ void choose() {
    int my_id = 0;
    float my_weight = 0.0f;
    for (int slot = 0; slot < p_.top_k; ++slot) {
      u32 local = 0;
      int at = 0;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
        if (key_[i] > local) local = key_[i], at = i;
      const u32 best = __reduce_max_sync(kAll, local);
      const int id = int(__reduce_min_sync(kAll, local == best ? u32(at * 32 + lane_) : kAll));
      float score = 0.0f;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i)
        if (i * 32 + lane_ == id) key_[i] = 0, score = score_[i];
      score = __shfl_sync(kAll, score, id & 31);
      if (lane_ == slot) my_id = id, my_weight = score;
    }
    const bool mine = lane_ < p_.top_k;
    if (p_.score_after_top_k) my_weight = score_of_chosen(mine ? my_weight : -INFINITY);
    if (!mine) my_weight = 0.0f;
    if (p_.renormalise) my_weight /= warp_sum(my_weight) + (p_.score == kSoftmax ? 0.0f : 1e-20f);
    if (mine) {
      p_.ids[token_ * p_.top_k + lane_] = my_id;
      p_.weights[token_ * p_.top_k + lane_] = my_weight * p_.scale;
    }
  }

 private:
  __device__ float logit(int e) const {
    const i64 at = i64(token_) * p_.experts + e;
    return p_.logits_bf16 ? from_bf16(static_cast<const u16*>(p_.logits)[at]) : static_cast<const float*>(p_.logits)[at];
  }
  __device__ static float unsort(u32 key) {
    return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xFFFFFFFFu));
  }
  __device__ static float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
  __device__ float elementwise(float x) const {
    return p_.score == kSigmoid ? 1.0f / (1.0f + expf(-x)) : sqrtf(softplus(x));
  }
  __device__ void apply_score() {
    if (p_.score != kSoftmax) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) score_[i] = elementwise(score_[i]);
      return;
    }
    float top = score_[0], sum = 0.0f;
#pragma unroll
    for (int i = 1; i < kPerLane; ++i) top = fmaxf(top, score_[i]);
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += score_[i] = expf(score_[i] - top);
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) score_[i] /= sum;
  }
  __device__ float score_of_chosen(float logit) const {
    if (p_.score != kSoftmax) return elementwise(logit);
    const float e = expf(logit - warp_max(logit));
    return e / warp_sum(e);
  }

  const RouteParams& p_;
  int token_, lane_;
  float score_[kPerLane];
  u32 key_[kPerLane];
};

template <int kPerLane>
__device__ inline void route_token(const RouteParams& p, int token, int lane) {
  Router<kPerLane> router(p, token, lane);
  if (p.groups > 1) router.keep_best_groups();
  router.choose();
}

constexpr int kGroupThreads = 1024;  // at least one thread an expert

// Counts, offsets, tiles and the two maps between sorted rows and (token, slot) pairs, in one block.
__device__ inline void group_by_expert(const GroupParams& p) {
  __shared__ int counts[kGroupThreads];
  __shared__ int warp_sums[3][32];
  const int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5, pairs = p.tokens * p.top_k;

  counts[thread] = 0;
  __syncthreads();
  for (int first = 0; first < pairs; first += kGroupThreads) {  // row_of_pair = place among the expert's own, for now
    const int pair = first + thread;
    const int e = pair < pairs ? p.ids[pair] - p.first_expert : -1;
    const bool mine = e >= 0 && e < p.experts;
    const u32 same = __match_any_sync(kAll, mine ? e : -1);
    const int leader = __ffs(same) - 1;
    int place = 0;
    if (mine && lane == leader) place = atomicAdd(&counts[e], __popc(same));
    place = __shfl_sync(kAll, place, leader) + __popc(same & ((1u << lane) - 1));
    if (pair < pairs) p.row_of_pair[pair] = mine ? place : -1;
  }
  __syncthreads();

  const int count = counts[thread];
  int sums[3] = {count, (count + p.tile_tokens[0] - 1) / p.tile_tokens[0], (count + p.tile_tokens[1] - 1) / p.tile_tokens[1]};
  const int own[3] = {sums[0], sums[1], sums[2]};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int left = __shfl_up_sync(kAll, sums[i], step);
      if (lane >= step) sums[i] += left;
    }
    if (lane == 31) warp_sums[i][warp] = sums[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int below = lane < warp ? warp_sums[i][lane] : 0;
    sums[i] += __reduce_add_sync(kAll, below) - own[i];
  }
  counts[thread] = sums[0];
  if (thread == kGroupThreads - 1) {
    p.tile_counts[0] = sums[1] + own[1];
    p.tile_counts[1] = sums[2] + own[2];
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
    for (int t = 0; t < own[i + 1]; ++t) {
      const int row = t * p.tile_tokens[i];
      p.tiles[i][sums[i + 1] + t] = {thread, sums[0] + row, min(count - row, p.tile_tokens[i]), 0};
    }
  __syncthreads();

  for (int pair = thread; pair < pairs; pair += kGroupThreads) {
    const int place = p.row_of_pair[pair];
    if (place < 0) continue;
    const int row = counts[p.ids[pair] - p.first_expert] + place;
    p.row_of_pair[pair] = row;
    p.token_of_row[row] = pair / p.top_k;
  }
}

// grid  x: warps, a token each
template <int kPerLane>
__global__ void __launch_bounds__(256) route(const RouteParams p) {
  let_next_start();
  const int token = blockIdx.x * 8 + (threadIdx.x >> 5);
  if (token < p.tokens) route_token<kPerLane>(p, token, threadIdx.x & 31);
}

// One block.
template <int kUnused>
__global__ void __launch_bounds__(kGroupThreads) group(const GroupParams p) {
  wait_for_previous();
  let_next_start();
  group_by_expert(p);
}

// One block, for few tokens.
template <int kPerLane>
__global__ void __launch_bounds__(kGroupThreads) route_and_group(const RouteParams r, const GroupParams g) {
  let_next_start();
  for (int token = threadIdx.x >> 5; token < r.tokens; token += kGroupThreads / 32)
    route_token<kPerLane>(r, token, threadIdx.x & 31);
  __syncthreads();
  group_by_expert(g);
}

}  // namespace moetune::kernels
