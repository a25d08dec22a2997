/* Runs a fused-MoE layer from C: weights that lie in the program's memory, a layer made of them,
 * one call, and what was chosen for it. docs/c-api.md explains each step. */
#include <stdio.h>
#include <stdlib.h>

#include "moetune/moetune.h"

enum { kHidden = 256, kIntermediate = 128, kExperts = 8, kTokens = 4 };

static uint16_t weights[kExperts][3][kIntermediate * kHidden]; /* gate, up, down, in bf16 */
static uint16_t hidden[kTokens * kHidden], output[kTokens * kHidden];
static float logits[kTokens * kExperts];

/* Every function that can fail returns a code; the text is the library's. */
static void must(moetune_status status) {
  if (status == MOETUNE_OK) return;
  fprintf(stderr, "%s: %s\n%s\n", moetune_status_name(status), moetune_last_error(),
          moetune_last_error_hint());
  exit(1);
}

static uint16_t random_bf16(void) { /* +-0.0625 to +-0.125 */
  return (uint16_t)(0x3D80 | (rand() & 0x7F) | (rand() % 2 << 15));
}

int main(void) {
  moetune_spec spec;
  moetune_expert experts[kExperts] = {0};
  moetune_weights source;
  moetune_layer_options options;
  moetune_layer* layer = NULL;
  moetune_selected selected = {sizeof selected};
  int i, part;

  /* What the layer is. moetune_spec_from_model() fills this in for a model's folder or a preset. */
  must(moetune_spec_init(&spec, sizeof spec));
  spec.hidden = kHidden;
  spec.intermediate = kIntermediate;
  spec.experts = spec.global_experts = kExperts;
  spec.top_k = 2;

  /* Where its weights are. Strides of 0 say that rows follow each other. */
  for (i = 0; i < kExperts; ++i) {
    int value;
    for (part = 0; part < 3; ++part)
      for (value = 0; value < kIntermediate * kHidden; ++value)
        weights[i][part][value] = random_bf16();
    experts[i].gate.data = weights[i][0];
    experts[i].up.data = weights[i][1];
    experts[i].down.data = weights[i][2];
  }
  must(moetune_weights_init(&source, sizeof source));
  source.experts = experts;
  source.count = kExperts;
  source.expert_size = sizeof *experts;

  /* Packs them for the device and compiles what the plan can choose. */
  must(moetune_layer_options_init(&options, sizeof options));
  options.device = "cpu"; /* On a GPU, pointers are the device's and the last argument a stream. */
  options.max_tokens = kTokens;
  must(moetune_layer_create(&spec, &source, &options, &layer));

  for (i = 0; i < kTokens * kHidden; ++i) hidden[i] = random_bf16();
  for (i = 0; i < kTokens * kExperts; ++i) logits[i] = (float)rand() / (float)RAND_MAX;
  must(moetune_layer_run(layer, kTokens, hidden, logits, output, NULL));

  must(moetune_layer_selected(layer, kTokens, &selected));
  printf("%s: %s\n%s\n", selected.provenance_name, selected.candidate, selected.reason);
  moetune_layer_free(layer);
  return 0;
}
