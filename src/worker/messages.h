// The parts of the worker protocol's messages: docs/worker-protocol.md describes them. Reading
// fails the reader with the place of what is wrong.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "moetune/measuring.h"
#include "tuner/ceilings.h"
#include "worker/line_channel.h"

namespace moetune::worker {

/// Raised by every change that an older peer would misunderstand.
inline constexpr int kProtocol = 1;
/// The program that serves.
inline constexpr const char* kProgramName = "moetune-worker";
/// "0.1.0": helper and parent must be of one version, as candidates mean what their kernels do.
const char* version();

/// Whom a request is about: `session`, made by "open".
using SessionId = int64_t;

Json problem_to_json(const Problem& problem);
Problem read_problem(JsonReader& reader);

/// {"runner", "version", "scheme", "stages"}; tuner/configuration.h has the reader.
Json candidate_to_json(const Candidate& candidate);

Json case_to_json(const Case& what);
Case read_case(JsonReader& reader);

const char* scale_name(Scale scale);
Scale read_scale(JsonReader& reader);

Json layouts_to_json(std::span<const WeightLayout> layouts);
std::vector<WeightLayout> read_layouts(JsonReader& reader);

/// Name, type and shape. The data travel in a file, tensor after tensor without gaps.
Json tensors_to_json(const Tensors& tensors);
/// Tensors without data, of sizes that make sense.
Tensors read_tensors(JsonReader& reader, const char* name);
/// Takes the data of such tensors out of the file that came with them, and points them at it.
Result<std::vector<std::vector<std::byte>>> fetch_tensors(Tensors& tensors, const Descriptor& file);
/// A file with the data of tensors that have some.
Result<Descriptor> file_of(const Tensors& tensors);

/// What a bench's data are, as 16 hexadecimal digits: FNV-1a over the bytes of the first chunk of
/// its weights at full scale, then of the inputs of `what`'s sample 0. Two processes whose digits
/// differ do not speak of the same data.
Result<std::string> data_digest(Workbench& bench, const Case& what);

/// {"read_bytes", "read_bytes_per_s", "read", "operations_per_s", "operations"}.
Json ceilings_to_json(const Ceilings& ceilings);
/// Fails the reader where a rate or a size is no number of a machine.
Ceilings read_ceilings(JsonReader& reader);

Json error_to_json(const Error& error);
Error read_error(JsonReader& reader);

Json sample_to_json(const Sample& sample);
Sample read_sample(JsonReader& reader);

}  // namespace moetune::worker
