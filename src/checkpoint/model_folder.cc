// The public interface: names of folders in place of what was opened of them.
#include <fmt/format.h>

#include "base/file.h"
#include "base/status_macros.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/expert_weights.h"
#include "checkpoint/router_weights.h"
#include "model/model_spec.h"
#include "moetune/checkpoint.h"

namespace moetune {

namespace {

struct ModelFolder {
  ModelSpec model;
  std::shared_ptr<checkpoint::Checkpoint> checkpoint;
};

Result<ModelFolder> open_model_folder(const std::string& name) {
  ModelFolder folder;
  MOETUNE_ASSIGN_OR_RETURN(folder.model, load_model(name));
  if (find_preset(name) != nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is a preset: it has no weights", name),
                 fmt::format("name a model's folder (./{} where it is called like that)", name)};
  }
  MOETUNE_ASSIGN_OR_RETURN(auto opened,
                           checkpoint::Checkpoint::open(parent_folder(folder.model.origin)));
  folder.checkpoint = std::move(opened);
  return folder;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> checkpoint_weights(const std::string& model, int64_t layer,
                                                         const FusedMoeSpec& spec, int rank) {
  MOETUNE_ASSIGN_OR_RETURN(ModelFolder folder, open_model_folder(model));
  return checkpoint::make_expert_weights(std::move(folder.checkpoint), folder.model, layer, spec,
                                         rank);
}

Result<RouterWeights> checkpoint_router(const std::string& model, int64_t layer) {
  MOETUNE_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(model));
  return checkpoint::read_router_weights(*folder.checkpoint, folder.model, layer);
}

int32_t first_expert(const FusedMoeSpec& spec, int rank) {
  return static_cast<int32_t>(first_of_share(spec.global_experts, 1, spec.ep, rank / spec.tp));
}

}  // namespace moetune
