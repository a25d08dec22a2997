// From router logits to experts and weights, and from those to the order in which the GEMMs work:
// tokens grouped by expert.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace moetune::kernels {

constexpr u32 kMinusInfinity =
    0x007FFFFFu;  // sortable(-inf); 0 is below everything: taken already, or no expert at all
// Unsigned integers in the order of the floats. NaN counts as -inf.
__device__ inline u32 sortable(float x) {
  const u32 bits = __float_as_uint(x);
  return x != x ? kMinusInfinity : bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}
constexpr u32 kAll = 0xFFFFFFFFu;
__device__ inline float minus_infinity() { return __uint_as_float(0xFF800000u); }

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
      score_[i] = e < p.experts ? p.logits[i64(token) * p.experts + e] : minus_infinity();
    }
    // Scores rise with their logits: where nothing is added to them, logits are the better keys.
    const bool by_logit = !p.bias && p.groups == 1;
    if (by_logit) set_keys();
    if (!p.score_after_top_k) apply_score();
    if (!by_logit) set_keys();
  }

  // Groups are ranked by the sum of their two best keys; experts of the others count as -inf.
  __device__ void keep_best_groups() {
    const int size = p_.experts / p_.groups;
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
      if (e < p_.experts && !(chosen >> (e / size) & 1)) key_[i] = kMinusInfinity;
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
    if (p_.score_after_top_k) my_weight = score_of_chosen(mine ? my_weight : minus_infinity());
    if (!mine) my_weight = 0.0f;
    if (p_.renormalise) my_weight /= warp_sum(my_weight) + (p_.score == kSoftmax ? 0.0f : 1e-20f);
    const int slots = p_.top_k + p_.shared;
    if (lane_ < slots) {
      p_.ids[token_ * slots + lane_] = mine ? my_id : p_.experts + lane_ - p_.top_k;
      p_.weights[token_ * slots + lane_] = mine ? my_weight * p_.scale : 1.0f;
    }
  }

 private:
  __device__ void set_keys() {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * 32 + lane_;
      key_[i] = e < p_.experts ? sortable(score_[i] + (p_.bias ? p_.bias[e] : 0.0f)) : 0;
    }
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

constexpr int kBatch = 4;  // loads of one thread in flight

// The expert of a pair as this rank numbers it, -1 where it is none of its own.
__device__ inline int local_expert(const GroupParams& p, int id) {
  const int e = id - (p.first_expert ? *p.first_expert : 0);
  return id >= 0 && e >= 0 && e < p.experts ? e : -1;
}

__device__ inline int tiles_of(const GroupParams& p, int matrix, int rows) {
  return (rows + p.tile_tokens[matrix] - 1) / p.tile_tokens[matrix];
}

__device__ inline void write_tiles(const GroupParams& p, int matrix, int first, int expert, int row,
                                   int rows) {
  const int tokens = p.tile_tokens[matrix];
  for (int done = 0; done < rows; done += tokens)
    p.tiles[matrix][first++] = {expert, row + done, min(rows - done, tokens), 0};
}

__device__ inline int warp_inclusive_sum(int x, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int left = __shfl_up_sync(kAll, x, step);
    if (lane >= step) x += left;
  }
  return x;
}

// Sum over the block's threads before this one, for several values at a time. Every thread gets its
// own.
template <int kValues>
__device__ inline void block_exclusive_sum(const int (&values)[kValues], int (&sums)[kValues]) {
  __shared__ int warp_sums[kValues][32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    sums[i] = warp_inclusive_sum(values[i], lane);
    if (lane == 31) warp_sums[i][warp] = sums[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kValues; ++i)
    sums[i] += __reduce_add_sync(kAll, lane < warp ? warp_sums[i][lane] : 0) - values[i];
}

// Adds the pairs [first, last) to counters of their experts and calls use(pair, expert, place),
// where place is what the counter stood at before. The whole block calls this.
template <class Use>
__device__ inline void count_pairs(const GroupParams& p, int first, int last, int* counters,
                                   const Use& use) {
  const int thread = threadIdx.x, lane = thread & 31;
  for (; first < last; first += kBatch * kGroupThreads) {
    int ids[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair = first + i * kGroupThreads + thread;
      ids[i] = pair < last ? p.ids[pair] : -1;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kGroupThreads >= last) break;
      const int pair = first + i * kGroupThreads + thread, e = local_expert(p, ids[i]);
      const u32 same = __match_any_sync(kAll, e);
      const int leader = __ffs(same) - 1;
      int place = 0;
      if (e >= 0 && lane == leader) place = atomicAdd(&counters[e], __popc(same));
      place = __shfl_sync(kAll, place, leader) + __popc(same & ((1u << lane) - 1));
      if (pair < last) use(pair, e, place);
    }
  }
}

// Tiles from the number of rows of every expert, of which each thread knows one. Returns the
// thread's first row.
__device__ inline int lay_out_experts(const GroupParams& p, int count, bool write) {
  const int own[3] = {count, tiles_of(p, 0, count), tiles_of(p, 1, count)};
  int before[3];
  block_exclusive_sum(own, before);
  if (write) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      write_tiles(p, i, before[i + 1], threadIdx.x, before[0], count);
      if (threadIdx.x == kGroupThreads - 1) p.tile_counts[i] = before[i + 1] + own[i + 1];
    }
  }
  return before[0];
}

// Counts, offsets, tiles and the two maps between sorted rows and (token, slot) pairs, in one
// block.
__device__ inline void group_by_expert(const GroupParams& p) {
  __shared__ int counters[kGroupThreads];
  const int thread = threadIdx.x, pairs = p.tokens * p.top_k;
  counters[thread] = 0;
  __syncthreads();
  count_pairs(p, 0, pairs, counters, [](int, int, int) {});
  __syncthreads();
  const int first_row = lay_out_experts(p, counters[thread], true);
  __syncthreads();
  counters[thread] = first_row;
  __syncthreads();
  count_pairs(p, 0, pairs, counters, [&](int pair, int e, int row) {
    p.row_of_pair[pair] = e >= 0 ? row : -1;
    if (e >= 0) p.token_of_row[row] = pair / p.top_k;
  });
}

// The same by one warp, for up to 32 pairs. Experts come in the order of their first pair.
__device__ inline void group_few(const GroupParams& p) {
  const int lane = threadIdx.x & 31, pairs = p.tokens * p.top_k;
  const int e = local_expert(p, lane < pairs ? p.ids[lane] : -1);
  const u32 same = __match_any_sync(kAll, e), below = (1u << lane) - 1;
  const bool leads = e >= 0 && (same & below) == 0;
  const int count = leads ? __popc(same) : 0;
  const int first_row = warp_inclusive_sum(count, lane) - count;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int tiles = tiles_of(p, i, count), end = warp_inclusive_sum(tiles, lane);
    write_tiles(p, i, end - tiles, e, first_row, count);
    if (lane == 31) p.tile_counts[i] = end;
  }
  const int row = __shfl_sync(kAll, first_row, __ffs(same) - 1) + __popc(same & below);
  if (lane >= pairs) return;
  p.row_of_pair[lane] = e >= 0 ? row : -1;
  if (e >= 0) p.token_of_row[row] = lane / p.top_k;
}

// grid  x: warps, a token each
template <int kPerLane>
__global__ void __launch_bounds__(256) route(const RouteParams p) {
  let_next_start();
  const int token = blockIdx.x * 8 + (threadIdx.x >> 5);
  if (token < p.tokens) route_token<kPerLane>(p, token, threadIdx.x & 31);
}

// grid  x: blocks of 256 slots
template <int kUnused>
__global__ void __launch_bounds__(256) append_shared(const AppendParams p) {
  let_next_start();
  const int at = blockIdx.x * 256 + threadIdx.x, slots = p.top_k + p.shared;
  if (at >= p.tokens * slots) return;
  const int token = at / slots, slot = at % slots;
  const bool given = slot < p.top_k;
  const int id = given ? p.ids[token * p.top_k + slot] : p.experts + slot - p.top_k;
  p.all_ids[at] = given && id >= p.experts ? -1 : id;
  p.all_weights[at] = given ? p.weights[token * p.top_k + slot] : 1.0f;
}

// One block.
template <int kUnused>
__global__ void __launch_bounds__(kGroupThreads) group_pairs(const GroupParams p) {
  wait_for_previous();
  let_next_start();
  group_by_expert(p);
}

// One warp, for up to 32 pairs.
template <int kUnused>
__global__ void __launch_bounds__(32) group_few_pairs(const GroupParams p) {
  wait_for_previous();
  group_few(p);
}

// The same by several blocks of kPairsPerGroupBlock pairs: a histogram each, ...
template <int kUnused>
__global__ void __launch_bounds__(kGroupThreads) group_count(const GroupParams p) {
  __shared__ int counters[kGroupThreads];
  wait_for_previous();
  let_next_start();
  counters[threadIdx.x] = 0;
  __syncthreads();
  const int first = blockIdx.x * kPairsPerGroupBlock;
  count_pairs(p, first, min(first + kPairsPerGroupBlock, p.tokens * p.top_k), counters,
              [](int, int, int) {});
  __syncthreads();
  if (threadIdx.x < p.experts)
    p.histograms[blockIdx.x * p.experts + threadIdx.x] = counters[threadIdx.x];
}

// ... from all of which every block then knows where its own pairs go.
template <int kUnused>
__global__ void __launch_bounds__(kGroupThreads) group_place(const GroupParams p) {
  __shared__ int counters[kGroupThreads];
  wait_for_previous();
  let_next_start();
  int count = 0, before = 0;
  if (threadIdx.x < p.experts) {
#pragma unroll 8
    for (int block = 0; block < gridDim.x; ++block) {
      const int n = p.histograms[block * p.experts + threadIdx.x];
      count += n;
      before += block < blockIdx.x ? n : 0;
    }
  }
  counters[threadIdx.x] = lay_out_experts(p, count, blockIdx.x == 0) + before;
  __syncthreads();
  const int first = blockIdx.x * kPairsPerGroupBlock;
  count_pairs(p, first, min(first + kPairsPerGroupBlock, p.tokens * p.top_k), counters,
              [&](int pair, int e, int row) {
                p.row_of_pair[pair] = e >= 0 ? row : -1;
                if (e >= 0) p.token_of_row[row] = pair / p.top_k;
              });
}

// One block, for few tokens.
template <int kPerLane>
__global__ void __launch_bounds__(kGroupThreads)
    route_and_group(const RouteParams r, const GroupParams g) {
  let_next_start();
  for (int token = threadIdx.x >> 5; token < r.tokens; token += kGroupThreads / 32)
    route_token<kPerLane>(r, token, threadIdx.x & 31);
  __syncthreads();
  group_by_expert(g);
}

// The same for up to 32 pairs, with a warp for each token.
template <int kPerLane>
__global__ void __launch_bounds__(kGroupThreads)
    route_and_group_few(const RouteParams r, const GroupParams g) {
  let_next_start();
  route_token<kPerLane>(r, threadIdx.x >> 5, threadIdx.x & 31);
  __syncthreads();
  if (threadIdx.x < 32) group_few(g);
}

}  // namespace moetune::kernels
