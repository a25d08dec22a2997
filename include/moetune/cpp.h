// Everything, for C++. docs/ has the guide; examples/ has programs. C programs include moetune.h.
#pragma once

#include "moetune/autotuner.h"
#include "moetune/checkpoint.h"
#include "moetune/fused_moe.h"
#include "moetune/measuring.h"
#include "moetune/moe_spec.h"
#include "moetune/moe_weights.h"
#include "moetune/plan.h"
#include "moetune/profile.h"
#include "moetune/result.h"
#include "moetune/runner.h"
#include "moetune/tactic.h"
#include "moetune/tensor.h"
