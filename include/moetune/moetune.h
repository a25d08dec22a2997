/* moetune for C and for everything that calls C: one rank's fused-MoE layer with its tuned plan.
 *
 *   moetune_spec spec;             what the layer is, by hand or from a model
 *   moetune_spec_init(&spec, sizeof spec);
 *   moetune_spec_from_model("qwen3-30b-a3b", NULL, &spec);
 *   moetune_layer* layer;          weights packed, kernels compiled, plan looked up
 *   if (moetune_layer_create(&spec, &weights, NULL, &layer) != MOETUNE_OK)
 *     fprintf(stderr, "%s\n%s\n", moetune_last_error(), moetune_last_error_hint());
 *   moetune_layer_run(layer, tokens, hidden, logits, output, stream);
 *   moetune_layer_free(layer);
 *
 * docs/c-api.md is the guide, examples/02_use_from_c a program, docs/operator.md what is computed.
 * C++ programs include moetune/cpp.h instead.
 *
 * Errors. What can fail returns a moetune_status. The text of the last one that was not MOETUNE_OK
 * is moetune_last_error()'s, of each thread its own. A function that fails leaves what its out
 * parameters point to as it was. No function ends the program or lets an exception out.
 *
 * Structures. The first member of each that may grow, `struct_size`, is its sizeof in the calling
 * program. Each has an _init function that sets it and the defaults; those for results need
 * nothing but struct_size set. A library that knows more members takes their defaults; one that
 * knows fewer refuses (MOETUNE_UNSUPPORTED) where one that it does not know is not zero.
 *
 * Texts are UTF-8 and end with 0. Those that come back belong to the library, and each function
 * says how long they live. Those that go in are copied.
 *
 * Threads. Everything may be called from any thread. Calls with the same moetune_layer exclude each
 * other: that is the caller's work. moetune_plans is immutable. Which GPU a thread has selected (by
 * cudaSetDevice(), say) neither matters nor changes.
 *
 * ABI. Within one MOETUNE_ABI_VERSION symbols, numbers and members stay where they are and only
 * come to be more; libmoetune.so's name carries it. */
#ifndef MOETUNE_MOETUNE_H_
#define MOETUNE_MOETUNE_H_

#include <stddef.h>
#include <stdint.h>

#include "moetune/dl_tensor.h"

#define MOETUNE_ABI_VERSION 1

#if defined(__GNUC__)
#define MOETUNE_API __attribute__((visibility("default")))
#else
#define MOETUNE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Library and errors ---------------------------------------------------------------------- */

/* MOETUNE_ABI_VERSION of the library that runs. */
MOETUNE_API int32_t moetune_abi_version(void);
/* "0.1.0". Lives for ever. */
MOETUNE_API const char* moetune_version(void);

typedef int32_t moetune_status;
enum {
  MOETUNE_OK = 0,
  MOETUNE_INVALID_ARGUMENT = 1, /* The caller asked for something that makes no sense. */
  MOETUNE_NOT_FOUND = 2,        /* A file, model or tensor that was named is not there. */
  MOETUNE_UNSUPPORTED = 3,      /* It makes sense, and this library or machine cannot do it. */
  MOETUNE_PARSE = 4,            /* A file's content is malformed. */
  MOETUNE_IO = 5,               /* The operating system refused to read or write. */
  MOETUNE_OUT_OF_MEMORY = 6,    /* Of the host or of the device. */
  MOETUNE_COMPILE = 7,          /* A kernel did not compile. */
  MOETUNE_RUN = 8,              /* A kernel ran and failed. */
  MOETUNE_WRONG_RESULT = 9,     /* A kernel ran and its output is not right. */
  MOETUNE_MEASUREMENT = 10,     /* A time that cannot be true. */
  MOETUNE_DEADLINE = 11,        /* A time limit passed. */
  MOETUNE_INTERRUPTED = 12,     /* Somebody asked to stop. */
  MOETUNE_INTERNAL = 13         /* A bug of moetune that was noticed in time. */
};
/* "ok", "invalid_argument", ...; "unknown" for other numbers. Lives for ever. */
MOETUNE_API const char* moetune_status_name(moetune_status status);
/* What went wrong and where, in the last call of this thread that failed; "" before one did. Lives
 * until another call of this thread fails. */
MOETUNE_API const char* moetune_last_error(void);
/* What to do about it; may be "". Lives as long. */
MOETUNE_API const char* moetune_last_error_hint(void);

/* ---- Specification --------------------------------------------------------------------------- */

/* moetune_spec.weights; docs/operator.md says what each consists of. */
enum {
  MOETUNE_BF16 = 0,
  MOETUNE_FP16 = 1,
  MOETUNE_FP8 = 2,       /* e4m3, an f32 scale each for gate, up and down */
  MOETUNE_FP8_BLOCK = 3, /* e4m3, an f32 scale for 128 x 128 values */
  MOETUNE_NVFP4 = 4,     /* e2m1, an e4m3 scale for 16 values, an f32 scale as fp8 */
  MOETUNE_MXFP4 = 5      /* e2m1, a power of two for 32 values */
};
/* moetune_spec.activations */
enum {
  MOETUNE_ACTIVATIONS_BF16 = 0,
  MOETUNE_ACTIVATIONS_FP8_BLOCK = 1, /* with MOETUNE_FP8_BLOCK weights only */
  MOETUNE_ACTIVATIONS_FP8 = 2 /* with MOETUNE_FP8 weights only, under given scales; on CPUs */
};
/* moetune_spec.output */
enum { MOETUNE_OUTPUT_BF16 = 0, MOETUNE_OUTPUT_F32 = 1 };
/* moetune_spec.activation */
enum {
  MOETUNE_SWIGLU = 0,
  MOETUNE_SWIGLU_CLAMPED = 1, /* gpt-oss */
  MOETUNE_RELU2 = 2,          /* without a gate */
  MOETUNE_GATE_PLUS_UP = 3
};
/* moetune_spec.score */
enum { MOETUNE_SOFTMAX = 0, MOETUNE_SIGMOID = 1, MOETUNE_SQRT_SOFTPLUS = 2 };

/* One rank's share of one layer. Truth values are 0 or 1. */
typedef struct moetune_spec {
  size_t struct_size;
  int64_t hidden;         /* Values of one token's hidden state. */
  int64_t intermediate;   /* Rows of gate (and of up) held by this rank. */
  int64_t experts;        /* Held by this rank, shared ones apart. */
  int64_t global_experts; /* The router chooses from; equals `experts` where ep is 1. */
  int32_t top_k;
  int32_t shared_experts; /* That every token visits with weight 1; only where ep is 1. */
  int32_t weights;        /* MOETUNE_BF16 */
  int32_t activations;    /* MOETUNE_ACTIVATIONS_BF16 */
  int32_t output;         /* MOETUNE_OUTPUT_BF16 */
  int32_t activation;     /* MOETUNE_SWIGLU */
  int32_t bias;           /* Biases on both GEMMs. */
  int32_t given_routing;  /* Top-k ids and weights are inputs; there is no router. */
  int32_t tp;             /* Tensor-parallel degree that `intermediate` is the result of. */
  int32_t ep;             /* Expert-parallel degree that `experts` is the result of. */
  /* The router: */
  int32_t score;             /* MOETUNE_SOFTMAX */
  int32_t selection_bias;    /* A bias per expert changes who is chosen, not the weights. */
  int32_t groups;            /* Experts form this many equal groups, ... */
  int32_t top_groups;        /* ... of which this many survive. */
  int32_t score_after_top_k; /* The score is over the chosen experts. */
  int32_t renormalise;       /* Weights sum to 1 before `scale`; 1 unless changed. */
  float scale;               /* Of the weights; 1 unless changed. */
  int32_t reserved;          /* 0 */
} moetune_spec;

/* struct_size, sizes of 0, and the defaults named above. */
MOETUNE_API moetune_status moetune_spec_init(moetune_spec* spec, size_t struct_size);

/* What a model leaves open. */
typedef struct moetune_model_options {
  size_t struct_size;
  int32_t weights;        /* A format, or -1 (unless changed): the checkpoint's own, else bf16. */
  int32_t activations;    /* MOETUNE_ACTIVATIONS_BF16 */
  int32_t tp;             /* 1 */
  int32_t ep;             /* 1 */
  int32_t rank;           /* Whose share: 0 <= rank < tp * ep. */
  int32_t shared_experts; /* 1: the model's shared experts are part of the layer. */
} moetune_model_options;
MOETUNE_API moetune_status moetune_model_options_init(moetune_model_options* options,
                                                      size_t struct_size);

/* The layer of a Hugging Face model folder, a config.json, or a preset ("qwen3-30b-a3b").
 * `options` may be NULL. `spec` needs struct_size. MOETUNE_NOT_FOUND where there is no such model.
 */
MOETUNE_API moetune_status moetune_spec_from_model(const char* model,
                                                   const moetune_model_options* options,
                                                   moetune_spec* spec);
/* MOETUNE_INVALID_ARGUMENT with the first thing that is wrong, in moetune_last_error(). */
MOETUNE_API moetune_status moetune_spec_check(const moetune_spec* spec);
/* Global id of the first expert that `rank` holds: moetune_layer_options.first_expert. */
MOETUNE_API moetune_status moetune_spec_first_expert(const moetune_spec* spec, int32_t rank,
                                                     int32_t* first_expert);

/* ---- Weights --------------------------------------------------------------------------------- */

/* A matrix in host memory, at any address. An element is one value (or scale), or the byte of two
 * 4-bit codes, the lower one first. */
typedef struct moetune_matrix {
  const void* data;
  int64_t row_stride;    /* Bytes from a row to the next; 0: rows follow each other. */
  int64_t column_stride; /* Bytes from an element to the next; 0: they follow each other. */
} moetune_matrix;

/* One expert: H = hidden, I = intermediate. What the format does not have is not looked at;
 * without a gate (MOETUNE_RELU2), neither are gate's parts. */
typedef struct moetune_expert {
  moetune_matrix gate;        /* [I, H], in bytes of two codes [I, H / 2] */
  moetune_matrix up;          /* the same */
  moetune_matrix down;        /* [H, I], in bytes of two codes [H, I / 2] */
  moetune_matrix gate_scales; /* nvfp4: e4m3 [I, ceil(H / 16)]; mxfp4: ue8m0 [I, ceil(H / 32)]; */
  moetune_matrix up_scales;   /* fp8-block: f32 [ceil(I / 128), ceil(H / 128)] */
  moetune_matrix down_scales; /* the same, with H and I exchanged */
  const float* gate_bias;     /* [I], where the specification has biases */
  const float* up_bias;       /* [I] */
  const float* down_bias;     /* [H]; NULL: zeros, as on all TP ranks but one */
  float gate_global;          /* nvfp4, fp8: multiplies every weight; no default, so set it. */
  float up_global;
  float down_global;
  int32_t reserved; /* 0 */
} moetune_expert;

/* All experts of this rank, shared ones last. */
typedef struct moetune_weights {
  size_t struct_size;
  const moetune_expert* experts;
  int64_t count;      /* experts + shared_experts of the specification */
  size_t expert_size; /* sizeof(moetune_expert) of the calling program, which sets it */
} moetune_weights;
MOETUNE_API moetune_status moetune_weights_init(moetune_weights* weights, size_t struct_size);

/* The same as DLPack tensors of host memory with any strides, E = experts + shared_experts,
 * R = 2 I (gate rows, then up rows; I without a gate): either one tensor with the experts as its
 * first dimension, or E tensors without it. Types: the format's own, or unsigned integers of that
 * width for their bits (uint16 for bf16, uint8 for e4m3 and ue8m0); two 4-bit codes are a uint8
 * or a float4_e2m1fn of two lanes. */
typedef struct moetune_dl_weights {
  size_t struct_size;
  int64_t count;              /* Tensors in each of these arrays: 1 or E. */
  const DLTensor* const* w13; /* [E, R, H], 4-bit [E, R, H / 2]; or E of [R, H] */
  const DLTensor* const* w2;  /* [E, H, I], 4-bit [E, H, I / 2] */
  /* [E, R, ceil(H / block)] and [E, H, ceil(I / block)]; fp8-block in blocks of rows too,
   * [E, ceil(I / 128) for gate + as many for up, ...] and [E, ceil(H / 128), ...] */
  const DLTensor* const* w13_scales;
  const DLTensor* const* w2_scales;
  const DLTensor* const* w13_global; /* f32 [E, 2]: of gate, of up */
  const DLTensor* const* w2_global;  /* f32 [E, 1] */
  const DLTensor* const* w13_bias;   /* f32 [E, R] */
  const DLTensor* const* w2_bias;    /* f32 [E, H]; NULL: zeros */
} moetune_dl_weights;
MOETUNE_API moetune_status moetune_dl_weights_init(moetune_dl_weights* weights, size_t struct_size);

/* ---- Layer ----------------------------------------------------------------------------------- */

typedef struct moetune_layer_options {
  size_t struct_size;
  const char* device;       /* "auto" (also NULL: the first GPU, else the CPU), "cpu", "cuda:0" */
  const char* config;       /* A tuned configuration. NULL: the usual place, where there is one. */
  int64_t max_tokens;       /* Of one call; sizes the workspace. 1024 unless changed. */
  int32_t threads;          /* Of a CPU; 0: all this process may use. */
  int32_t first_expert;     /* Global id of this rank's expert 0, where ep > 1. */
  const float* router_bias; /* [global_experts], where the router has a selection bias. */
  int32_t deterministic;    /* 1: the same bits on every run; only kernels that keep to that. */
  int32_t pinned;           /* 1: exactly what `config` says, or no layer. */
  int32_t defaults_only;    /* 1: no configuration is read. */
  int32_t caller_workspace; /* 1: moetune_layer_set_workspace() comes before the first run. */
  const float* activation_scales; /* [2]: of x and of h, with MOETUNE_ACTIVATIONS_FP8. */
} moetune_layer_options;
MOETUNE_API moetune_status moetune_layer_options_init(moetune_layer_options* options,
                                                      size_t struct_size);

/* Owns device, packed weights, compiled kernels and, unless the caller does, the workspace. */
typedef struct moetune_layer moetune_layer;

/* Packs the weights, which are free to go afterwards, and compiles every kernel that the plan can
 * choose, so that no run waits. `options` may be NULL. Errors: MOETUNE_INVALID_ARGUMENT for
 * arguments that do not fit each other, naming expert and part; MOETUNE_NOT_FOUND and MOETUNE_PARSE
 * for `config`; MOETUNE_UNSUPPORTED for a device that is not there or has no kernels for the number
 * formats, or a configuration of another device; MOETUNE_OUT_OF_MEMORY; MOETUNE_COMPILE. */
MOETUNE_API moetune_status moetune_layer_create(const moetune_spec* spec,
                                                const moetune_weights* weights,
                                                const moetune_layer_options* options,
                                                moetune_layer** layer);
/* Tensors are read during the call only, and never deleted. MOETUNE_UNSUPPORTED where one is in a
 * GPU's memory. */
MOETUNE_API moetune_status moetune_layer_create_dl(const moetune_spec* spec,
                                                   const moetune_dl_weights* weights,
                                                   const moetune_layer_options* options,
                                                   moetune_layer** layer);
/* Layer number `index` (from 0, dense ones counted) of a model's folder with safetensors, as
 * `rank` (0 <= rank < tp * ep of `spec`) holds it. `spec` is moetune_spec_from_model()'s of that
 * model and rank. first_expert and, unless given, router_bias come from there too;
 * activation_scales do not. */
MOETUNE_API moetune_status moetune_layer_create_from_checkpoint(
    const moetune_spec* spec, const char* model, int64_t index, int32_t rank,
    const moetune_layer_options* options, moetune_layer** layer);
/* NULL is fine. No run may be under way, on a GPU's stream neither. */
MOETUNE_API void moetune_layer_free(moetune_layer* layer);

/* Bytes of device memory that a run works in; fixed by create. 0 for NULL. */
MOETUNE_API size_t moetune_layer_workspace_bytes(const moetune_layer* layer);
/* For layers with caller_workspace: memory of the layer's device, 256-byte aligned, at least
 * moetune_layer_workspace_bytes(), until it is replaced or the layer freed. Its content does not
 * matter. Layers may share it as long as their runs do not overlap: on a GPU, on one stream. */
MOETUNE_API moetune_status moetune_layer_set_workspace(moetune_layer* layer, void* workspace,
                                                       size_t bytes);

/* hidden [tokens, hidden] bf16, logits [tokens, global_experts] f32, output [tokens, hidden] of
 * the specification's type; dense, on the layer's device. 0 <= tokens <= max_tokens. `stream` is a
 * CUstream (cudaStream_t; NULL: the default one), ignored on a CPU, where the output is there on
 * return. On a GPU hidden begins at a multiple of 16 bytes and output at one of 8. Neither
 * allocates nor synchronises, and can be captured in a graph. */
MOETUNE_API moetune_status moetune_layer_run(moetune_layer* layer, int64_t tokens,
                                             const void* hidden, const float* logits, void* output,
                                             void* stream);
/* For given_routing: ids [tokens, top_k] i32 (-1: skipped), weights [tokens, top_k] f32. */
MOETUNE_API moetune_status moetune_layer_run_routed(moetune_layer* layer, int64_t tokens,
                                                    const void* hidden, const int32_t* ids,
                                                    const float* weights, void* output,
                                                    void* stream);
/* The same from tensors, whose device, type, shape and strides (dense) are checked first;
 * bf16 may come as uint16. */
MOETUNE_API moetune_status moetune_layer_run_dl(moetune_layer* layer, const DLTensor* hidden,
                                                const DLTensor* logits, const DLTensor* output,
                                                void* stream);
MOETUNE_API moetune_status moetune_layer_run_routed_dl(moetune_layer* layer, const DLTensor* hidden,
                                                       const DLTensor* ids, const DLTensor* weights,
                                                       const DLTensor* output, void* stream);

/* ---- Provenance ------------------------------------------------------------------------------ */

/* moetune_selected.provenance */
enum {
  MOETUNE_PROVENANCE_TUNED = 0,   /* Measured for this layer on a device like this. */
  MOETUNE_PROVENANCE_NEAREST = 1, /* A sibling device's plan. */
  MOETUNE_PROVENANCE_STALE = 2,   /* The kernels changed since; the default runs. */
  MOETUNE_PROVENANCE_DEFAULT = 3  /* Nothing known, or switched off; the default runs. */
};

/* What would run for a number of tokens, and why. Texts live as long as the layer. */
typedef struct moetune_selected {
  size_t struct_size;
  int32_t provenance;
  int32_t reserved;
  const char* provenance_name; /* "tuned", ... */
  const char* candidate;       /* "cpu.packed/separate gemm1{...} gemm2{...}" */
  const char* reason;
} moetune_selected;
/* `selected` needs struct_size. Tokens beyond 1..max_tokens count as the nearer end. */
MOETUNE_API moetune_status moetune_layer_selected(moetune_layer* layer, int64_t tokens,
                                                  moetune_selected* selected);
/* What of the configuration could not be used, one text each, index from 0; NULL after the last.
 * Lives as long as the layer. */
MOETUNE_API const char* moetune_layer_note(const moetune_layer* layer, size_t index);
/* Its device, as plans are found by: "cpu isa=avx2 threads=8 ...". Lives as long as the layer. */
MOETUNE_API const char* moetune_layer_device(const moetune_layer* layer);
/* 1: the default runs at every size, from the next run on; 0: the plan counts again. */
MOETUNE_API moetune_status moetune_layer_use_defaults(moetune_layer* layer, int32_t on);

/* ---- Plans ----------------------------------------------------------------------------------- */

/* A tuned configuration: the plans of one device. moetune_layer_options.config is such a file. */
typedef struct moetune_plans moetune_plans;

/* MOETUNE_NOT_FOUND, MOETUNE_IO, MOETUNE_PARSE naming where in the file, or MOETUNE_UNSUPPORTED for
 * the format of a newer version. */
MOETUNE_API moetune_status moetune_plans_load(const char* path, moetune_plans** plans);
MOETUNE_API void moetune_plans_free(moetune_plans* plans);
/* The device they are for, as moetune_layer_device(). Lives as long as `plans`. */
MOETUNE_API const char* moetune_plans_device(const moetune_plans* plans);
MOETUNE_API size_t moetune_plans_count(const moetune_plans* plans);
/* Which plan is for that layer. MOETUNE_NOT_FOUND where none is. */
MOETUNE_API moetune_status moetune_plans_find(const moetune_plans* plans, const moetune_spec* spec,
                                              size_t* index);

/* Texts live as long as the plans. */
typedef struct moetune_plan_info {
  size_t struct_size;
  const char* problem; /* "fused_moe activation=swiglu experts=128 ..." */
  const char* runner;  /* Whose kernels: "cpu.packed". */
  const char* layout;  /* Of the weights. */
  int64_t max_tokens;  /* The plan covers 1..max_tokens. */
  size_t decisions;
} moetune_plan_info;
MOETUNE_API moetune_status moetune_plans_get(const moetune_plans* plans, size_t index,
                                             moetune_plan_info* info);

/* What runs for from <= tokens <= to. Texts live as long as the plans. */
typedef struct moetune_decision {
  size_t struct_size;
  int64_t tokens; /* It was measured at. */
  int64_t from;
  int64_t to;
  int32_t is_default;
  int32_t resolved;                 /* 0: too little evidence, so the default stays. */
  double speedup;                   /* Over the default, paired; 1 for the default. */
  double speedup_low, speedup_high; /* Its 95 % interval. */
  double median_us, default_median_us;
  const char* candidate;
  const char* workload; /* The routing it was confirmed on. */
  const char* note;     /* "" or, for people, "vetoed on zipf:1.2: 0.94x" */
  const char* date;     /* UTC, ISO 8601 */
} moetune_decision;
MOETUNE_API moetune_status moetune_plans_decision(const moetune_plans* plans, size_t index,
                                                  size_t decision, moetune_decision* info);

#ifdef __cplusplus
}
#endif

#endif /* MOETUNE_MOETUNE_H_ */
