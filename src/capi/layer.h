// What a moetune_layer holds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "moetune/fused_moe.h"
#include "moetune/moetune.h"

struct moetune_layer {
  std::unique_ptr<moetune::FusedMoe> moe;
  std::string device_key;
  bool is_host = true;
  int32_t ordinal = 0;  ///< Of the GPU.
  /// Texts that were asked for. Candidates stay where they are as long as the layer.
  std::map<const moetune::Candidate*, std::string> candidate_texts;
};
