/* A small layer with random weights, and what its output is: the definition of docs/operator.md,
 * written down once more, in C and in double precision. */
#ifndef MOETUNE_TESTS_CAPI_REFERENCE_H_
#define MOETUNE_TESTS_CAPI_REFERENCE_H_

#include "moetune/moetune.h"

enum { kHidden = 64, kIntermediate = 32, kExperts = 4, kTopK = 2, kMostTokens = 7 };
/* Rows lie further apart than they are long, so that strides matter. */
enum { kPadding = 6 };

typedef struct {
  int32_t format;                    /* MOETUNE_BF16 or MOETUNE_MXFP4 */
  unsigned char* bytes[kExperts][3]; /* gate, up, down: rows with kPadding bytes after each */
  unsigned char* scales[kExperts][3];
  moetune_expert experts[kExperts];
  moetune_spec spec;
  moetune_weights weights;
} small_layer;

void make_small_layer(small_layer* layer, int32_t format);
void free_small_layer(small_layer* layer);

typedef struct {
  uint16_t hidden[kMostTokens * kHidden];
  float logits[kMostTokens * kExperts];
} small_inputs;

void make_inputs(small_inputs* inputs);
/* Routes as the layer's router does. */
void route(const float* logits, int32_t* ids, float* weights);
void reference(const small_layer* layer, int64_t tokens, const small_inputs* inputs,
               double* output);
/* The same with ids and weights [tokens, kTopK] given. */
void reference_routed(const small_layer* layer, int64_t tokens, const small_inputs* inputs,
                      const int32_t* ids, const float* weights, double* output);
/* How far a bf16 output is off, relative to the root mean square of what it should be. */
double relative_error(const uint16_t* output, const double* expected, int64_t count);
float from_bf16(uint16_t bits);

#endif
