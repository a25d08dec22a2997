/* Codes and texts of what goes wrong. The argument is a configuration of a device that this machine
 * does not compute on: a GPU's. */
#include "check.h"
#include "moetune/moetune.h"
#include "reference.h"

static small_layer small;

static moetune_layer_options cpu_options(void) {
  moetune_layer_options options;
  OK(moetune_layer_options_init(&options, sizeof options));
  options.device = "cpu";
  options.threads = 1;
  options.max_tokens = kMostTokens;
  options.defaults_only = 1;
  return options;
}

static void test_structures(void) {
  moetune_spec spec = small.spec;
  struct {
    moetune_spec known;
    int64_t later;
  } newer;
  FAILS(moetune_spec_init(NULL, sizeof spec), MOETUNE_INVALID_ARGUMENT, "moetune_spec is NULL");
  FAILS(moetune_spec_init(&spec, 4), MOETUNE_INVALID_ARGUMENT, "struct_size of 4");
  CHECK(moetune_last_error_hint()[0] != 0);
  spec.struct_size = 0;
  FAILS(moetune_spec_check(&spec), MOETUNE_INVALID_ARGUMENT, "struct_size of 0");
  FAILS(moetune_spec_check(NULL), MOETUNE_INVALID_ARGUMENT, "NULL");

  /* A program that was compiled for a library with more members. */
  memset(&newer, 0xFF, sizeof newer);
  OK(moetune_spec_init(&newer.known, sizeof newer));
  CHECK(newer.later == 0 && newer.known.struct_size == sizeof newer);
  newer.known = small.spec;
  newer.known.struct_size = sizeof newer;
  OK(moetune_spec_check(&newer.known));
  newer.later = 1;
  FAILS(moetune_spec_check(&newer.known), MOETUNE_UNSUPPORTED, "does not know");
}

static void test_specifications(void) {
  moetune_spec spec = small.spec;
  moetune_model_options options;
  int32_t first = -1;
  OK(moetune_spec_check(&spec));
  spec.top_k = 5;
  FAILS(moetune_spec_check(&spec), MOETUNE_INVALID_ARGUMENT, "top_k");
  spec = small.spec;
  spec.weights = 6;
  FAILS(moetune_spec_check(&spec), MOETUNE_INVALID_ARGUMENT, "weights is 6");
  spec = small.spec;
  spec.renormalise = 7;
  FAILS(moetune_spec_check(&spec), MOETUNE_INVALID_ARGUMENT, "renormalise");

  spec.struct_size = sizeof spec;
  FAILS(moetune_spec_from_model("qwen3-31b", NULL, &spec), MOETUNE_NOT_FOUND, "qwen3-31b");
  FAILS(moetune_spec_from_model(NULL, NULL, &spec), MOETUNE_INVALID_ARGUMENT, "model");
  OK(moetune_spec_from_model("qwen3-30b-a3b", NULL, &spec));
  CHECK(spec.hidden == 2048 && spec.experts == 128 && spec.top_k == 8);
  CHECK(spec.weights == MOETUNE_BF16);
  OK(moetune_model_options_init(&options, sizeof options));
  options.weights = MOETUNE_NVFP4;
  options.tp = 2;
  options.ep = 4;
  options.rank = 3;
  OK(moetune_spec_from_model("qwen3-30b-a3b", &options, &spec));
  CHECK(spec.weights == MOETUNE_NVFP4 && spec.experts == 32 && spec.intermediate == 384);
  OK(moetune_spec_first_expert(&spec, 3, &first));
  CHECK(first == 32);
  FAILS(moetune_spec_first_expert(&spec, 8, &first), MOETUNE_INVALID_ARGUMENT, "rank is 8");
  options.rank = 8;
  FAILS(moetune_spec_from_model("qwen3-30b-a3b", &options, &spec), MOETUNE_INVALID_ARGUMENT,
        "rank 8");
}

static void test_weights(void) {
  const moetune_layer_options options = cpu_options();
  moetune_weights weights = small.weights;
  moetune_layer* const untouched = (moetune_layer*)&small;
  moetune_layer* layer = untouched;
  const void* kept = small.experts[2].down.data;
  FAILS(moetune_layer_create(NULL, &weights, &options, &layer), MOETUNE_INVALID_ARGUMENT,
        "moetune_spec is NULL");
  FAILS(moetune_layer_create(&small.spec, NULL, &options, &layer), MOETUNE_INVALID_ARGUMENT,
        "moetune_weights is NULL");
  FAILS(moetune_layer_create(&small.spec, &weights, &options, NULL), MOETUNE_INVALID_ARGUMENT,
        "layer is NULL");
  weights.count = 3;
  FAILS(moetune_layer_create(&small.spec, &weights, &options, &layer), MOETUNE_INVALID_ARGUMENT,
        "3 experts");
  weights = small.weights;
  weights.expert_size = 8;
  FAILS(moetune_layer_create(&small.spec, &weights, &options, &layer), MOETUNE_INVALID_ARGUMENT,
        "moetune_expert");
  small.experts[2].down.data = NULL;
  FAILS(moetune_layer_create(&small.spec, &small.weights, &options, &layer),
        MOETUNE_INVALID_ARGUMENT, "expert 2: down is missing");
  small.experts[2].down.data = kept;
  CHECK(layer == untouched);
}

static void test_devices_and_plans(const char* gpu_config) {
  moetune_layer_options options = cpu_options();
  moetune_layer* layer = NULL;
  moetune_plans* plans = NULL;
  moetune_plan_info info;
  moetune_decision decision;
  moetune_spec spec;
  size_t index = 0;
  options.device = "toaster";
  FAILS(moetune_layer_create(&small.spec, &small.weights, &options, &layer),
        MOETUNE_INVALID_ARGUMENT, "toaster");
  options = cpu_options();
  options.defaults_only = 0;
  options.config = "no-such-plan.json";
  FAILS(moetune_layer_create(&small.spec, &small.weights, &options, &layer), MOETUNE_NOT_FOUND,
        "no-such-plan.json");
  options.config = gpu_config;
  FAILS(moetune_layer_create(&small.spec, &small.weights, &options, &layer), MOETUNE_UNSUPPORTED,
        "cuda");
  CHECK(layer == NULL);

  FAILS(moetune_plans_load("no-such-plan.json", &plans), MOETUNE_NOT_FOUND, "no-such-plan.json");
  OK(moetune_plans_load(gpu_config, &plans));
  CHECK(moetune_plans_count(plans) >= 1);
  CHECK(strstr(moetune_plans_device(plans), "sm=90") != NULL);
  spec.struct_size = sizeof spec;
  OK(moetune_spec_from_model("qwen3-30b-a3b", NULL, &spec));
  OK(moetune_plans_find(plans, &spec, &index));
  info.struct_size = sizeof info;
  OK(moetune_plans_get(plans, index, &info));
  CHECK(strstr(info.problem, "hidden=2048") != NULL);
  CHECK(info.max_tokens >= 1024 && info.decisions >= 2);
  decision.struct_size = sizeof decision;
  OK(moetune_plans_decision(plans, index, 0, &decision));
  CHECK(decision.from == 1 && decision.to >= 1 && decision.speedup > 0.9);
  CHECK(decision.candidate[0] != 0 && decision.workload[0] != 0);
  FAILS(moetune_plans_decision(plans, index, info.decisions, &decision), MOETUNE_INVALID_ARGUMENT,
        "decision");
  FAILS(moetune_plans_get(plans, 1000, &info), MOETUNE_INVALID_ARGUMENT, "plan 1000");
  FAILS(moetune_plans_find(plans, &small.spec, &index), MOETUNE_NOT_FOUND, "no plan of");
  moetune_plans_free(plans);
}

static void test_runs(void) {
  const moetune_layer_options options = cpu_options();
  moetune_layer* layer = NULL;
  small_inputs inputs;
  uint16_t output[kMostTokens * kHidden];
  int32_t ids[kTopK] = {0, 1};
  float weights[kTopK] = {0.5f, 0.5f};
  make_inputs(&inputs);
  OK(moetune_layer_create(&small.spec, &small.weights, &options, &layer));
  FAILS(moetune_layer_run(NULL, 1, inputs.hidden, inputs.logits, output, NULL),
        MOETUNE_INVALID_ARGUMENT, "layer");
  FAILS(moetune_layer_run(layer, 1, NULL, inputs.logits, output, NULL), MOETUNE_INVALID_ARGUMENT,
        "hidden");
  FAILS(moetune_layer_run(layer, 1, inputs.hidden, NULL, output, NULL), MOETUNE_INVALID_ARGUMENT,
        "logits");
  FAILS(moetune_layer_run(layer, 1, inputs.hidden, inputs.logits, NULL, NULL),
        MOETUNE_INVALID_ARGUMENT, "output");
  FAILS(moetune_layer_run(layer, kMostTokens + 1, inputs.hidden, inputs.logits, output, NULL),
        MOETUNE_INVALID_ARGUMENT, "8 tokens");
  FAILS(moetune_layer_run(layer, -1, inputs.hidden, inputs.logits, output, NULL),
        MOETUNE_INVALID_ARGUMENT, "-1 tokens");
  FAILS(moetune_layer_run_routed(layer, 1, inputs.hidden, ids, weights, output, NULL),
        MOETUNE_INVALID_ARGUMENT, "router");
  FAILS(moetune_layer_set_workspace(layer, output, sizeof output), MOETUNE_INVALID_ARGUMENT, "own");
  OK(moetune_layer_run(layer, 0, NULL, NULL, NULL, NULL));
  moetune_layer_free(layer);
}

int main(int argc, char** argv) {
  CHECK(moetune_last_error()[0] == 0);
  make_small_layer(&small, MOETUNE_BF16);
  test_structures();
  test_specifications();
  test_weights();
  if (argc > 1) test_devices_and_plans(argv[1]);
  test_runs();
  free_small_layer(&small);
  return failures > 0;
}
