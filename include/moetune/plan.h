// What tuning leaves behind: decisions with their evidence, plans that cover every number of
// tokens, and the file that carries them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "moetune/result.h"
#include "moetune/runner.h"
#include "moetune/tactic.h"

namespace moetune {

/// A device as plans know it. Matching goes by `identity` (compute capability or instruction sets,
/// multiprocessors or cores, memory), not by name.
struct DeviceProperties {
  std::string kind;  ///< "cpu" or "cuda".
  std::string name;  ///< Marketing name, for people.
  /// {"isa", "avx2"}, {"cores", "2"}, {"sm", "90"}, ...
  std::map<std::string, std::string> identity;
  /// Driver, CUDA, compiler: recorded and reported, never matched.
  std::map<std::string, std::string> toolchain;

  /// "cpu cores=2 isa=avx2 ...": what a plan is found by.
  std::string key() const;
  /// Each property of the identity that differs: "cores: 2 here, 8 there". `other` is "there".
  std::vector<std::string> differences(const DeviceProperties& other) const;
  /// The same for the toolchain.
  std::vector<std::string> toolchain_differences(const DeviceProperties& other) const;
  /// Whether the other device runs the same kernels (kind and instruction set agree) though its
  /// sizes differ: its plans are worth a try where there is nothing better, as kNearest.
  bool is_sibling(const DeviceProperties& other) const;

  bool operator==(const DeviceProperties&) const = default;
};

/// Microseconds over the samples of one candidate.
struct TimeSummary {
  double median_us = 0;
  double min_us = 0;
  double q1_us = 0;
  double q3_us = 0;
  int samples = 0;
  bool operator==(const TimeSummary&) const = default;
};

/// Why a decision is what it is.
struct Evidence {
  TimeSummary chosen;      ///< Fresh samples of the confirmation, whole operator. For an unresolved
                           ///< bucket, of the challenger that did not win.
  TimeSummary fallback;    ///< The default's, from the same rounds.
  double speedup = 1;      ///< Median over rounds of default / chosen, paired.
  double speedup_low = 1;  ///< Its 95 % interval.
  double speedup_high = 1;
  bool resolved = false;   ///< The default was shown to be best or to be beaten; false: not enough
                           ///< evidence, the default stays.
  std::string workload;    ///< Routing the confirmation used.
  std::string note;        ///< For people: "vetoed on zipf:1.2: 0.94x", "budget spent", ...
  bool on_part = false;    ///< The times are of a part of the layer's weights, with as many rows
                           ///< for each chunk as in the whole, where calls on the whole are dear.
  int candidates = 0;      ///< Tried in this bucket.
  int rejected = 0;        ///< Of those, failed to compile, run, or be right.
  std::string date;        ///< UTC, ISO 8601.
  std::string challenger;  ///< Candidate text of what was confirmed against the default and lost or
                           ///< stayed unresolved; empty otherwise.
  bool operator==(const Evidence&) const = default;
};

/// What runs for from <= tokens <= to.
struct Decision {
  int64_t tokens = 0;  ///< The bucket it was measured at.
  int64_t from = 0;
  int64_t to = 0;
  Candidate candidate;
  bool is_default = true;
  Evidence evidence;
  /// What a file said that this version does not know, kept for the next save. "" or a JSON object
  /// in the shape of the file's.
  std::string extra_json;
  bool operator==(const Decision&) const = default;
};

/// What runs one layer: one weight layout, and decisions that cover [1, max_tokens] without gap or
/// overlap, sorted. Above max_tokens nothing was measured and executables were not compiled: the
/// default runs.
struct Plan {
  Problem problem;
  std::string runner;  ///< Whose layout it is.
  std::string layout;
  int64_t max_tokens = 0;
  std::vector<Decision> decisions;
  /// Only candidates that give the same bits on every run took part (TuneRequest::deterministic).
  bool deterministic = false;
  std::string extra_json;

  /// kParse naming the first gap, overlap or interval out of order.
  Status check_coverage() const;
  bool operator==(const Plan&) const = default;
};

/// The portable result: plans for one device model. A value type.
struct TunedConfiguration {
  static constexpr int kFormat = 1;

  DeviceProperties device;
  std::vector<Plan> plans;  ///< Sorted by problem key.
  std::string extra_json;

  const Plan* find(const Problem& problem) const;
  /// Adds a plan or replaces the one of the same problem.
  void put(Plan plan);

  /// JSON text, indented, keys in a fixed order: two saves of the same state are identical bytes.
  std::string to_json() const;
  /// kParse (naming where: "plans[3].decisions[0].from: ...") or kUnsupported (a newer format).
  /// Unknown fields are kept, at every level. `origin` is for messages.
  static Result<TunedConfiguration> from_json(const std::string& text, const std::string& origin);

  /// from_json() of a file; kNotFound and kIo with the system's reason.
  static Result<TunedConfiguration> load(const std::string& path);
  /// Takes a lock beside the file (<path>.lock, which stays), reads what is there now, merges this
  /// one's plans over it and replaces the file atomically: concurrent writers lose nothing, a kill
  /// leaves the old or the new file. Makes missing folders, for their owner only.
  /// A file that is for another device (kInvalidArgument, naming what differs), of a newer format
  /// (kUnsupported) or no tuned configuration at all (kParse) is left alone; an empty one is
  /// replaced.
  Status save_merged(const std::string& path) const;
};

/// Where a look-up's answer comes from.
enum class Provenance : uint8_t {
  kTuned,    ///< Measured for this problem on a device with these properties.
  kNearest,  ///< A sibling device's plan.
  kStale,    ///< The runner's version changed since; the default runs.
  kDefault,  ///< Nothing known, or nothing better, or results are switched off.
};
const char* to_string(Provenance provenance);

}  // namespace moetune
