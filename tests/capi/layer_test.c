/* Layers made and run by a C program, against the reference. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "moetune/moetune.h"
#include "reference.h"

static moetune_layer_options cpu_options(void) {
  moetune_layer_options options;
  OK(moetune_layer_options_init(&options, sizeof options));
  CHECK(options.max_tokens == 1024);
  options.device = "cpu";
  options.threads = 2;
  options.max_tokens = kMostTokens;
  options.defaults_only = 1;
  return options;
}

static void check_output(const small_layer* small, int64_t tokens, const small_inputs* inputs,
                         const uint16_t* output) {
  double expected[kMostTokens * kHidden];
  double error;
  reference(small, tokens, inputs, expected);
  error = relative_error(output, expected, tokens * kHidden);
  if (!(error < 5e-3)) fprintf(stderr, "relative error %g at %d tokens\n", error, (int)tokens);
  CHECK(error < 5e-3);
}

static void test_runs(int32_t format) {
  small_layer small;
  small_inputs inputs;
  uint16_t output[kMostTokens * kHidden];
  const moetune_layer_options options = cpu_options();
  moetune_layer* layer = NULL;
  int64_t tokens;
  make_small_layer(&small, format);
  make_inputs(&inputs);
  OK(moetune_layer_create(&small.spec, &small.weights, &options, &layer));
  if (layer == NULL) return;
  for (tokens = 0; tokens <= kMostTokens; ++tokens) {
    memset(output, 0xFF, sizeof output);
    OK(moetune_layer_run(layer, tokens, inputs.hidden, inputs.logits, output, NULL));
    if (tokens > 0) check_output(&small, tokens, &inputs, output);
    CHECK(tokens == kMostTokens || output[tokens * kHidden] == 0xFFFF);
  }
  moetune_layer_free(layer);
  free_small_layer(&small);
}

static void test_given_routing(void) {
  small_layer small;
  small_inputs inputs;
  uint16_t output[kMostTokens * kHidden];
  int32_t ids[kMostTokens * kTopK];
  float weights[kMostTokens * kTopK];
  const moetune_layer_options options = cpu_options();
  moetune_layer* layer = NULL;
  int token;
  make_small_layer(&small, MOETUNE_BF16);
  make_inputs(&inputs);
  small.spec.given_routing = 1;
  OK(moetune_layer_create(&small.spec, &small.weights, &options, &layer));
  for (token = 0; token < kMostTokens; ++token)
    route(inputs.logits + token * kExperts, ids + token * kTopK, weights + token * kTopK);
  OK(moetune_layer_run_routed(layer, kMostTokens, inputs.hidden, ids, weights, output, NULL));
  check_output(&small, kMostTokens, &inputs, output);
  moetune_layer_free(layer);
  free_small_layer(&small);
}

/* A selection bias decides who is chosen, and none of the weights. */
static void test_router_bias(void) {
  static const float bias[kExperts] = {0, 100, 200, 0};
  small_layer small;
  small_inputs inputs;
  uint16_t output[kMostTokens * kHidden];
  double expected[kMostTokens * kHidden];
  int32_t ids[kMostTokens * kTopK];
  float weights[kMostTokens * kTopK];
  moetune_layer_options options = cpu_options();
  moetune_layer* layer = NULL;
  int token;
  make_small_layer(&small, MOETUNE_BF16);
  make_inputs(&inputs);
  small.spec.selection_bias = 1;
  FAILS(moetune_layer_create(&small.spec, &small.weights, &options, &layer),
        MOETUNE_INVALID_ARGUMENT, "router_bias has 0 values");
  options.router_bias = bias;
  OK(moetune_layer_create(&small.spec, &small.weights, &options, &layer));
  OK(moetune_layer_run(layer, kMostTokens, inputs.hidden, inputs.logits, output, NULL));
  for (token = 0; token < kMostTokens; ++token) {
    const float* logits = inputs.logits + token * kExperts;
    ids[2 * token] = 2;
    ids[2 * token + 1] = 1;
    weights[2 * token] = (float)(1 / (1 + exp(logits[1] - logits[2])));
    weights[2 * token + 1] = 1 - weights[2 * token];
  }
  reference_routed(&small, kMostTokens, &inputs, ids, weights, expected);
  CHECK(relative_error(output, expected, kMostTokens * kHidden) < 5e-3);
  moetune_layer_free(layer);
  free_small_layer(&small);
}

/* Two layers in one workspace of the caller's. */
static void test_shared_workspace(void) {
  small_layer small[2];
  small_inputs inputs;
  uint16_t output[kMostTokens * kHidden];
  moetune_layer* layers[2] = {NULL, NULL};
  moetune_layer_options options = cpu_options();
  unsigned char *memory, *workspace;
  size_t bytes = 0;
  int i;
  options.caller_workspace = 1;
  make_inputs(&inputs);
  for (i = 0; i < 2; ++i) {
    make_small_layer(&small[i], i == 0 ? MOETUNE_BF16 : MOETUNE_MXFP4);
    OK(moetune_layer_create(&small[i].spec, &small[i].weights, &options, &layers[i]));
    if (moetune_layer_workspace_bytes(layers[i]) > bytes)
      bytes = moetune_layer_workspace_bytes(layers[i]);
  }
  CHECK(bytes > 0);
  FAILS(moetune_layer_run(layers[0], 1, inputs.hidden, inputs.logits, output, NULL),
        MOETUNE_INVALID_ARGUMENT, "no workspace");
  memory = malloc(bytes + 512);
  memset(memory, 0xFF, bytes + 512);
  workspace = memory + (256 - (uintptr_t)memory % 256);
  FAILS(moetune_layer_set_workspace(layers[0], workspace + 64, bytes), MOETUNE_INVALID_ARGUMENT,
        "256-byte aligned");
  FAILS(moetune_layer_set_workspace(layers[0], NULL, bytes), MOETUNE_INVALID_ARGUMENT, "aligned");
  FAILS(moetune_layer_set_workspace(layers[0], workspace,
                                    moetune_layer_workspace_bytes(layers[0]) - 1),
        MOETUNE_INVALID_ARGUMENT, "needs");
  for (i = 0; i < 2; ++i) OK(moetune_layer_set_workspace(layers[i], workspace, bytes));
  for (i = 0; i < 4; ++i) {
    OK(moetune_layer_run(layers[i % 2], kMostTokens, inputs.hidden, inputs.logits, output, NULL));
    check_output(&small[i % 2], kMostTokens, &inputs, output);
  }
  for (i = 0; i < (int)(workspace - memory); ++i) CHECK(memory[i] == 0xFF);
  for (i = (int)(workspace - memory) + (int)bytes; i < (int)bytes + 512; ++i)
    CHECK(memory[i] == 0xFF);
  for (i = 0; i < 2; ++i) {
    moetune_layer_free(layers[i]);
    free_small_layer(&small[i]);
  }
  free(memory);
}

static void test_provenance(void) {
  small_layer small;
  const moetune_layer_options options = cpu_options();
  moetune_layer* layer = NULL;
  moetune_selected selected;
  make_small_layer(&small, MOETUNE_BF16);
  OK(moetune_layer_create(&small.spec, &small.weights, &options, &layer));
  selected.struct_size = sizeof selected;
  OK(moetune_layer_selected(layer, 3, &selected));
  CHECK(selected.provenance == MOETUNE_PROVENANCE_DEFAULT);
  CHECK(strcmp(selected.provenance_name, "default") == 0);
  CHECK(strstr(selected.candidate, "cpu.packed/") == selected.candidate);
  CHECK(selected.reason[0] != 0);
  CHECK(moetune_layer_note(layer, 0) == NULL);
  CHECK(strstr(moetune_layer_device(layer), "cpu ") == moetune_layer_device(layer));
  OK(moetune_layer_use_defaults(layer, 1));
  moetune_layer_free(layer);
  moetune_layer_free(NULL);
  free_small_layer(&small);
}

int main(void) {
  test_runs(MOETUNE_BF16);
  test_runs(MOETUNE_MXFP4);
  test_given_routing();
  test_router_bias();
  test_shared_workspace();
  test_provenance();
  return failures > 0;
}
