// What a command works on: a layer, a device, and the parts that measure the one on the other.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "engine/backend.h"
#include "engine/isolation.h"
#include "engine/kernel_host.h"
#include "engine/moe_session.h"
#include "moetune/autotuner.h"

namespace moetune::cli {

/// Kernels of others that take part.
struct HostedPart {
  std::vector<HostChoice> hosts;           ///< Empty: moetune's own kernels only.
  std::vector<Suggestion> suggested = {};  ///< Points that belong to their spaces.
};

struct Job {
  ModelSpec model;
  std::optional<RealWeights> weights;  ///< In place of random ones.
  std::unique_ptr<Backend> backend;
  Isolation isolation;                   ///< Of the session's own candidates.
  std::vector<HostChoice> host_choices;  ///< As they were asked for, and ...
  std::vector<KernelHost> hosts;         ///< ... running.
  std::unique_ptr<MoeSession> session;   ///< Refers to `backend`.
  std::unique_ptr<AutoTuner> tuner;

  const DeviceProperties& device() const { return tuner->device(); }
};

/// Bytes of one rank's share of one layer's weights, before any packing.
uint64_t weight_bytes(const FusedMoeSpec& spec);

/// How much to read to learn the memory ceiling of a layer: its weights, as far as that takes a
/// second or so.
size_t ceiling_bytes(const FusedMoeSpec& spec);

enum class Purpose : uint8_t {
  kMeasure,  ///< The layer's weights must fit into --memory and what is free: else kOutOfMemory.
  kLookUp,   ///< Nothing is run.
};

/// Where candidates run.
enum class Where : uint8_t {
  kHere,          ///< In this process.
  kHelper,        ///< In a helper process; an error where there is none.
  kHelperOrHere,  ///< In a helper process where there is one, else here, with a note.
};

/// --isolation: "worker", "in-process"; empty: kHelperOrHere.
Result<Where> parse_isolation(const std::string& text);

/// What was assumed about the model goes to `output`.
Result<Job> open_job(const LayerFlags::Layer& layer, const DeviceFlags::Values& device,
                     uint64_t seed, Purpose purpose, Output& output, Where where = Where::kHere,
                     const AutoTunerOptions& tuner = {}, const WorkerPolicy& policy = {},
                     const HostedPart& hosted = {});

/// Ends what helpers and hosts are at work on soon after a stop.
void stop_helpers_on(Job& job, const std::stop_token& stop);

/// Why a helper or a host is not brought back to work any more; empty: all are well.
std::string trouble_of(const Job& job);

/// Moves an open job's candidates to where they are to run, when its plan is known: where nobody
/// asked for a place (kHelperOrHere), here if all of them are `proven` (is_proven()).
Status place_candidates(Job& job, const DeviceFlags::Values& device, uint64_t seed, Where where,
                        bool proven, Output& output);

/// Whether everything that look-ups for these numbers of tokens give is proven.
bool all_proven(Job& job, const std::vector<int64_t>& tokens);

/// The problem with its model's name and, with real weights, their layer: for --json.
Json describe_problem(const Job& job);

/// The ceilings of the job's layer, measured where its candidates run. By this process, with a note
/// to `output`, where the helper cannot.
Result<Ceilings> measure_ceilings(Job& job, Output& output);

/// "worker", "in-process".
const char* isolation_name(const Job& job);

/// Loads a tuned configuration into the job's tuner and checks it against today's runners; what
/// does not fit goes to `output`, a reason each. `path` empty: get_config_path(), and none there is
/// no error. Returns the path that was read; empty: there was none.
Result<std::string> load_configuration(Job& job, const std::string& path, Output& output);

}  // namespace moetune::cli
