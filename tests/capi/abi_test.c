/* What programs that are already compiled depend on, beside the names in symbols.txt: sizes,
 * offsets and numbers. A line that no longer holds needs another MOETUNE_ABI_VERSION; new members
 * come at the end, with lines of their own, and change a size here and kFirstSize in
 * src/capi/boundary.h. */
#include "check.h"
#include "moetune/moetune.h"

#define AT(structure, member, offset) CHECK(offsetof(structure, member) == (offset))

size_t size_of_theirs(void);

static void test_spec(void) {
  CHECK(sizeof(moetune_spec) == 112);
  AT(moetune_spec, struct_size, 0);
  AT(moetune_spec, hidden, 8);
  AT(moetune_spec, intermediate, 16);
  AT(moetune_spec, experts, 24);
  AT(moetune_spec, global_experts, 32);
  AT(moetune_spec, top_k, 40);
  AT(moetune_spec, shared_experts, 44);
  AT(moetune_spec, weights, 48);
  AT(moetune_spec, activations, 52);
  AT(moetune_spec, output, 56);
  AT(moetune_spec, activation, 60);
  AT(moetune_spec, bias, 64);
  AT(moetune_spec, given_routing, 68);
  AT(moetune_spec, tp, 72);
  AT(moetune_spec, ep, 76);
  AT(moetune_spec, score, 80);
  AT(moetune_spec, selection_bias, 84);
  AT(moetune_spec, groups, 88);
  AT(moetune_spec, top_groups, 92);
  AT(moetune_spec, score_after_top_k, 96);
  AT(moetune_spec, renormalise, 100);
  AT(moetune_spec, scale, 104);
  CHECK(sizeof(moetune_model_options) == 32);
  AT(moetune_model_options, weights, 8);
  AT(moetune_model_options, activations, 12);
  AT(moetune_model_options, tp, 16);
  AT(moetune_model_options, ep, 20);
  AT(moetune_model_options, rank, 24);
  AT(moetune_model_options, shared_experts, 28);
}

static void test_weights(void) {
  CHECK(sizeof(moetune_matrix) == 24);
  AT(moetune_matrix, row_stride, 8);
  AT(moetune_matrix, column_stride, 16);
  CHECK(sizeof(moetune_expert) == 184);
  AT(moetune_expert, gate, 0);
  AT(moetune_expert, up, 24);
  AT(moetune_expert, down, 48);
  AT(moetune_expert, gate_scales, 72);
  AT(moetune_expert, up_scales, 96);
  AT(moetune_expert, down_scales, 120);
  AT(moetune_expert, gate_bias, 144);
  AT(moetune_expert, up_bias, 152);
  AT(moetune_expert, down_bias, 160);
  AT(moetune_expert, gate_global, 168);
  AT(moetune_expert, up_global, 172);
  AT(moetune_expert, down_global, 176);
  CHECK(sizeof(moetune_weights) == 32);
  AT(moetune_weights, experts, 8);
  AT(moetune_weights, count, 16);
  AT(moetune_weights, expert_size, 24);
  CHECK(sizeof(moetune_dl_weights) == 80);
  AT(moetune_dl_weights, count, 8);
  AT(moetune_dl_weights, w13, 16);
  AT(moetune_dl_weights, w2, 24);
  AT(moetune_dl_weights, w13_scales, 32);
  AT(moetune_dl_weights, w2_scales, 40);
  AT(moetune_dl_weights, w13_global, 48);
  AT(moetune_dl_weights, w2_global, 56);
  AT(moetune_dl_weights, w13_bias, 64);
  AT(moetune_dl_weights, w2_bias, 72);
}

static void test_layer(void) {
  CHECK(sizeof(moetune_layer_options) == 72);
  AT(moetune_layer_options, device, 8);
  AT(moetune_layer_options, config, 16);
  AT(moetune_layer_options, max_tokens, 24);
  AT(moetune_layer_options, threads, 32);
  AT(moetune_layer_options, first_expert, 36);
  AT(moetune_layer_options, router_bias, 40);
  AT(moetune_layer_options, deterministic, 48);
  AT(moetune_layer_options, pinned, 52);
  AT(moetune_layer_options, defaults_only, 56);
  AT(moetune_layer_options, caller_workspace, 60);
  AT(moetune_layer_options, activation_scales, 64);
  CHECK(sizeof(moetune_selected) == 40);
  AT(moetune_selected, provenance, 8);
  AT(moetune_selected, provenance_name, 16);
  AT(moetune_selected, candidate, 24);
  AT(moetune_selected, reason, 32);
}

static void test_plans(void) {
  CHECK(sizeof(moetune_plan_info) == 48);
  AT(moetune_plan_info, problem, 8);
  AT(moetune_plan_info, runner, 16);
  AT(moetune_plan_info, layout, 24);
  AT(moetune_plan_info, max_tokens, 32);
  AT(moetune_plan_info, decisions, 40);
  CHECK(sizeof(moetune_decision) == 112);
  AT(moetune_decision, tokens, 8);
  AT(moetune_decision, from, 16);
  AT(moetune_decision, to, 24);
  AT(moetune_decision, is_default, 32);
  AT(moetune_decision, resolved, 36);
  AT(moetune_decision, speedup, 40);
  AT(moetune_decision, speedup_low, 48);
  AT(moetune_decision, speedup_high, 56);
  AT(moetune_decision, median_us, 64);
  AT(moetune_decision, default_median_us, 72);
  AT(moetune_decision, candidate, 80);
  AT(moetune_decision, workload, 88);
  AT(moetune_decision, note, 96);
  AT(moetune_decision, date, 104);
}

static void test_dl_tensor(void) {
  CHECK(sizeof(DLTensor) == 48 && sizeof(DLTensor) == size_of_theirs());
  AT(DLTensor, data, 0);
  AT(DLTensor, device, 8);
  AT(DLTensor, ndim, 16);
  AT(DLTensor, dtype, 20);
  AT(DLTensor, shape, 24);
  AT(DLTensor, strides, 32);
  AT(DLTensor, byte_offset, 40);
}

static void test_numbers(void) {
  static const char* const names[] = {
      "ok",          "invalid_argument", "not_found",   "unsupported", "parse",
      "io",          "out_of_memory",    "compile",     "run",         "wrong_result",
      "measurement", "deadline",         "interrupted", "internal"};
  int i;
  CHECK(moetune_abi_version() == MOETUNE_ABI_VERSION && MOETUNE_ABI_VERSION == 1);
  CHECK(moetune_version()[0] != 0);
  for (i = 0; i < (int)(sizeof names / sizeof names[0]); ++i)
    CHECK(strcmp(moetune_status_name(i), names[i]) == 0);
  CHECK(strcmp(moetune_status_name(14), "unknown") == 0);
  CHECK(strcmp(moetune_status_name(-1), "unknown") == 0);
  CHECK(MOETUNE_INVALID_ARGUMENT == 1 && MOETUNE_NOT_FOUND == 2 && MOETUNE_UNSUPPORTED == 3);
  CHECK(MOETUNE_OUT_OF_MEMORY == 6 && MOETUNE_INTERNAL == 13);
  CHECK(MOETUNE_BF16 == 0 && MOETUNE_FP16 == 1 && MOETUNE_FP8 == 2 && MOETUNE_FP8_BLOCK == 3);
  CHECK(MOETUNE_NVFP4 == 4 && MOETUNE_MXFP4 == 5);
}

int main(void) {
  test_spec();
  test_weights();
  test_layer();
  test_plans();
  test_dl_tensor();
  test_numbers();
  return failures > 0;
}
