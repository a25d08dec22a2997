#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t random_state = 1;

static uint32_t random_bits(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

static float random_float(void) { return (float)(random_bits() >> 8) / 8388608.0f - 1.0f; }

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static int rows_of(int part) { return part == 2 ? kHidden : kIntermediate; }
static int columns_of(int part) { return part == 2 ? kIntermediate : kHidden; }
static int row_bytes(int32_t format, int part) {
  return format == MOETUNE_BF16 ? 2 * columns_of(part) : columns_of(part) / 2;
}
static int blocks_of(int part) { return (columns_of(part) + 31) / 32; }

static void fill_matrix(small_layer* layer, int expert, int part) {
  const int stride = row_bytes(layer->format, part) + kPadding;
  unsigned char* bytes = malloc((size_t)(rows_of(part) * stride));
  unsigned char* scales = malloc((size_t)(rows_of(part) * blocks_of(part)));
  moetune_expert* to = &layer->experts[expert];
  moetune_matrix* const matrices[3] = {&to->gate, &to->up, &to->down};
  moetune_matrix* const scale_matrices[3] = {&to->gate_scales, &to->up_scales, &to->down_scales};
  int row, i;
  memset(bytes, 0xFF, (size_t)(rows_of(part) * stride));
  for (row = 0; row < rows_of(part); ++row) {
    unsigned char* at = bytes + row * stride;
    for (i = 0; i < row_bytes(layer->format, part); ++i) {
      if (layer->format == MOETUNE_MXFP4) {
        at[i] = (unsigned char)random_bits();
      } else if (i % 2 == 0) {
        const uint16_t value = to_bf16(0.3f * random_float());
        memcpy(at + i, &value, sizeof value);
      }
    }
    for (i = 0; i < blocks_of(part); ++i)
      scales[row * blocks_of(part) + i] = (unsigned char)(122 + random_bits() % 4);
  }
  layer->bytes[expert][part] = bytes;
  layer->scales[expert][part] = scales;
  matrices[part]->data = bytes;
  matrices[part]->row_stride = stride;
  scale_matrices[part]->data = scales;
}

void make_small_layer(small_layer* layer, int32_t format) {
  int expert, part;
  memset(layer, 0, sizeof *layer);
  layer->format = format;
  moetune_spec_init(&layer->spec, sizeof layer->spec);
  layer->spec.hidden = kHidden;
  layer->spec.intermediate = kIntermediate;
  layer->spec.experts = layer->spec.global_experts = kExperts;
  layer->spec.top_k = kTopK;
  layer->spec.weights = format;
  for (expert = 0; expert < kExperts; ++expert) {
    for (part = 0; part < 3; ++part) fill_matrix(layer, expert, part);
  }
  moetune_weights_init(&layer->weights, sizeof layer->weights);
  layer->weights.experts = layer->experts;
  layer->weights.count = kExperts;
  layer->weights.expert_size = sizeof(moetune_expert);
}

void free_small_layer(small_layer* layer) {
  int expert, part;
  for (expert = 0; expert < kExperts; ++expert) {
    for (part = 0; part < 3; ++part) {
      free(layer->bytes[expert][part]);
      free(layer->scales[expert][part]);
    }
  }
}

static double weight(const small_layer* layer, int expert, int part, int row, int column) {
  static const double codes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int stride = row_bytes(layer->format, part) + kPadding;
  const unsigned char* at = layer->bytes[expert][part] + row * stride;
  int code;
  double value;
  if (layer->format == MOETUNE_BF16) {
    uint16_t bits;
    memcpy(&bits, at + 2 * column, sizeof bits);
    return from_bf16(bits);
  }
  code = at[column / 2] >> (column % 2 == 0 ? 0 : 4) & 15;
  value = ldexp(codes[code & 7],
                layer->scales[expert][part][row * blocks_of(part) + column / 32] - 127);
  return code & 8 ? -value : value;
}

void make_inputs(small_inputs* inputs) {
  int i;
  for (i = 0; i < kMostTokens * kHidden; ++i) inputs->hidden[i] = to_bf16(random_float());
  for (i = 0; i < kMostTokens * kExperts; ++i) inputs->logits[i] = 2 * random_float();
}

void route(const float* logits, int32_t* ids, float* weights) {
  double sum = 0;
  int slot, expert, other;
  for (slot = 0; slot < kTopK; ++slot) {
    int best = -1;
    for (expert = 0; expert < kExperts; ++expert) {
      int taken = 0;
      for (other = 0; other < slot; ++other) taken |= ids[other] == expert;
      if (!taken && (best < 0 || logits[expert] > logits[best])) best = expert;
    }
    ids[slot] = best;
    sum += exp(logits[best]);
  }
  for (slot = 0; slot < kTopK; ++slot) weights[slot] = (float)(exp(logits[ids[slot]]) / sum);
}

static void add_expert(const small_layer* layer, int expert, double share, const uint16_t* x,
                       double* output) {
  double h[kIntermediate];
  int row, i;
  for (row = 0; row < kIntermediate; ++row) {
    double gate = 0, up = 0;
    for (i = 0; i < kHidden; ++i) {
      gate += weight(layer, expert, 0, row, i) * from_bf16(x[i]);
      up += weight(layer, expert, 1, row, i) * from_bf16(x[i]);
    }
    h[row] = from_bf16(to_bf16((float)(gate / (1 + exp(-gate)) * up)));
  }
  for (row = 0; row < kHidden; ++row) {
    for (i = 0; i < kIntermediate; ++i)
      output[row] += share * weight(layer, expert, 2, row, i) * h[i];
  }
}

void reference_routed(const small_layer* layer, int64_t tokens, const small_inputs* inputs,
                      const int32_t* ids, const float* weights, double* output) {
  int64_t token;
  int slot;
  for (token = 0; token < tokens; ++token) {
    memset(output + token * kHidden, 0, kHidden * sizeof *output);
    for (slot = 0; slot < kTopK; ++slot)
      add_expert(layer, ids[token * kTopK + slot], weights[token * kTopK + slot],
                 inputs->hidden + token * kHidden, output + token * kHidden);
  }
}

void reference(const small_layer* layer, int64_t tokens, const small_inputs* inputs,
               double* output) {
  int32_t ids[kMostTokens * kTopK];
  float weights[kMostTokens * kTopK];
  int64_t token;
  for (token = 0; token < tokens; ++token)
    route(inputs->logits + token * kExperts, ids + token * kTopK, weights + token * kTopK);
  reference_routed(layer, tokens, inputs, ids, weights, output);
}

double relative_error(const uint16_t* output, const double* expected, int64_t count) {
  double error = 0, size = 0;
  int64_t i;
  for (i = 0; i < count; ++i) {
    const double off = from_bf16(output[i]) - expected[i];
    error += off * off;
    size += expected[i] * expected[i];
  }
  return size > 0 ? sqrt(error / size) : 1;
}
