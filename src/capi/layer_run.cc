// Running a layer from pointers and from tensors.
#include <array>
#include <initializer_list>
#include <utility>

#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/dl.h"
#include "capi/layer.h"

namespace moetune::capi {

namespace {

// What is null would be read only later, on the device.
Status check_pointers(const moetune_layer* layer, int64_t tokens,
                      std::initializer_list<std::pair<const void*, const char*>> pointers) {
  MOETUNE_RETURN_IF_ERROR(need(layer, "layer"));
  if (tokens == 0) return {};
  for (const auto& [pointer, name] : pointers) MOETUNE_RETURN_IF_ERROR(need(pointer, name));
  return {};
}

Status run_pointers(moetune_layer* layer, int64_t tokens, const void* hidden, const float* logits,
                    void* output, void* stream) {
  MOETUNE_RETURN_IF_ERROR(
      check_pointers(layer, tokens, {{hidden, "hidden"}, {logits, "logits"}, {output, "output"}}));
  return layer->moe->run(tokens, hidden, logits, output, stream);
}

Status run_routed_pointers(moetune_layer* layer, int64_t tokens, const void* hidden,
                           const int32_t* ids, const float* weights, void* output, void* stream) {
  MOETUNE_RETURN_IF_ERROR(check_pointers(
      layer, tokens, {{hidden, "hidden"}, {ids, "ids"}, {weights, "weights"}, {output, "output"}}));
  return layer->moe->run_routed(tokens, hidden, ids, weights, output, stream);
}

// Checks tensors [tokens, columns] of one call, whose number of tokens the first one says.
class CallTensors {
 public:
  explicit CallTensors(const moetune_layer& layer)
      : place_{.is_host = layer.is_host, .ordinal = layer.ordinal} {}

  Result<void*> check(const DLTensor* tensor, const char* name, DataType type, int64_t columns) {
    const std::array<int64_t, 2> shape = {tokens_, columns};
    MOETUNE_RETURN_IF_ERROR(check_dense(tensor, {name, type, shape, place_}));
    tokens_ = tensor->shape[0];
    return static_cast<void*>(data_of(*tensor));
  }
  int64_t tokens() const { return tokens_; }

 private:
  DlPlace place_;
  int64_t tokens_ = -1;
};

Status run_tensors(moetune_layer* layer, const DLTensor* hidden, const DLTensor* logits,
                   const DLTensor* output, void* stream) {
  MOETUNE_RETURN_IF_ERROR(need(layer, "layer"));
  const FusedMoeSpec& spec = layer->moe->spec();
  CallTensors call(*layer);
  MOETUNE_ASSIGN_OR_RETURN(void* x, call.check(hidden, "hidden", DataType::kBf16, spec.hidden));
  MOETUNE_ASSIGN_OR_RETURN(void* l,
                           call.check(logits, "logits", DataType::kF32, spec.global_experts));
  MOETUNE_ASSIGN_OR_RETURN(void* y, call.check(output, "output", spec.output, spec.hidden));
  return layer->moe->run(call.tokens(), x, static_cast<const float*>(l), y, stream);
}

Status run_routed_tensors(moetune_layer* layer, const DLTensor* hidden, const DLTensor* ids,
                          const DLTensor* weights, const DLTensor* output, void* stream) {
  MOETUNE_RETURN_IF_ERROR(need(layer, "layer"));
  const FusedMoeSpec& spec = layer->moe->spec();
  CallTensors call(*layer);
  MOETUNE_ASSIGN_OR_RETURN(void* x, call.check(hidden, "hidden", DataType::kBf16, spec.hidden));
  MOETUNE_ASSIGN_OR_RETURN(void* i, call.check(ids, "ids", DataType::kI32, spec.top_k));
  MOETUNE_ASSIGN_OR_RETURN(void* w, call.check(weights, "weights", DataType::kF32, spec.top_k));
  MOETUNE_ASSIGN_OR_RETURN(void* y, call.check(output, "output", spec.output, spec.hidden));
  return layer->moe->run_routed(call.tokens(), x, static_cast<const int32_t*>(i),
                                static_cast<const float*>(w), y, stream);
}

}  // namespace

}  // namespace moetune::capi

moetune_status moetune_layer_run(moetune_layer* layer, int64_t tokens, const void* hidden,
                                 const float* logits, void* output, void* stream) {
  return moetune::capi::guarded(
      [&] { return moetune::capi::run_pointers(layer, tokens, hidden, logits, output, stream); });
}

moetune_status moetune_layer_run_routed(moetune_layer* layer, int64_t tokens, const void* hidden,
                                        const int32_t* ids, const float* weights, void* output,
                                        void* stream) {
  return moetune::capi::guarded([&] {
    return moetune::capi::run_routed_pointers(layer, tokens, hidden, ids, weights, output, stream);
  });
}

moetune_status moetune_layer_run_dl(moetune_layer* layer, const DLTensor* hidden,
                                    const DLTensor* logits, const DLTensor* output, void* stream) {
  return moetune::capi::guarded(
      [&] { return moetune::capi::run_tensors(layer, hidden, logits, output, stream); });
}

moetune_status moetune_layer_run_routed_dl(moetune_layer* layer, const DLTensor* hidden,
                                           const DLTensor* ids, const DLTensor* weights,
                                           const DLTensor* output, void* stream) {
  return moetune::capi::guarded([&] {
    return moetune::capi::run_routed_tensors(layer, hidden, ids, weights, output, stream);
  });
}
