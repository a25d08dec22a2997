#include "worker/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/status_macros.h"
#include "tuner/configuration.h"

namespace moetune::worker {
namespace {

constexpr size_t kMaxLayouts = 64;
constexpr size_t kMaxTensors = 64;
constexpr size_t kMaxDimensions = 8;
constexpr int64_t kMaxTokens = int64_t{1} << 24;
constexpr int64_t kMaxBytes = int64_t{1} << 38;  // Beyond any call's arguments.

constexpr std::array kTypes = {DataType::kF32,    DataType::kF16,   DataType::kBf16,
                               DataType::kF8E4M3, DataType::kUe8m0, DataType::kE2M1x2,
                               DataType::kI32,    DataType::kU8};

constexpr std::array kCodes = {
    ErrorCode::kInvalidArgument, ErrorCode::kNotFound, ErrorCode::kUnsupported,
    ErrorCode::kParse,           ErrorCode::kIo,       ErrorCode::kOutOfMemory,
    ErrorCode::kCompile,         ErrorCode::kRun,      ErrorCode::kWrongResult,
    ErrorCode::kMeasurement,     ErrorCode::kDeadline, ErrorCode::kInterrupted,
    ErrorCode::kInternal};

// Fails for sizes whose product is no size of a tensor.
void check_shape(JsonReader& reader, const Tensor& tensor) {
  int64_t values = 1;
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 || (extent > 0 && values > kMaxBytes / extent)) {
      return reader.fail("shape", "not the shape of an array");
    }
    values *= extent;
  }
}

Tensor read_tensor(JsonReader& reader, const Json& shape) {
  Tensor tensor;
  std::string type;
  reader.required("name", tensor.name);
  reader.required("type", type);
  const auto* known = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](DataType each) { return type == to_string(each); });
  if (known == kTypes.end()) {
    reader.fail("type", fmt::format("'{}' is no type", type));
    return tensor;
  }
  tensor.type = *known;
  if (!shape.is_array() || shape.size() > kMaxDimensions) {
    reader.fail("shape", "expected a short array of integers");
    return tensor;
  }
  for (const Json& extent : shape) {
    if (!extent.is_number_integer()) reader.fail("shape", "expected integers");
    if (!reader.ok()) return tensor;
    tensor.shape.push_back(extent.get<int64_t>());
  }
  check_shape(reader, tensor);
  return tensor;
}

}  // namespace

const char* version() { return MOETUNE_VERSION; }

Json problem_to_json(const Problem& problem) {
  return Json{{"op", problem.op}, {"attributes", strings_to_json(problem.attributes)}};
}

Problem read_problem(JsonReader& reader) {
  Problem problem;
  reader.object("problem", [&](JsonReader& fields) {
    fields.required("op", problem.op);
    fields.object("attributes",
                  [&](JsonReader& attributes) { problem.attributes = read_strings(attributes); });
  });
  return problem;
}

Json candidate_to_json(const Candidate& candidate) {
  return Json{{"runner", candidate.runner},
              {"version", candidate.runner_version},
              {"scheme", candidate.scheme},
              {"stages", stages_to_json(candidate)}};
}

Json case_to_json(const Case& what) {
  // As a text: a seed is any 64 bits, and not every reader of JSON keeps those.
  return Json{
      {"tokens", what.tokens}, {"workload", what.workload}, {"seed", fmt::format("{}", what.seed)}};
}

Case read_case(JsonReader& reader) {
  Case what;
  reader.object("case", [&](JsonReader& fields) {
    std::string seed;
    fields.required("tokens", what.tokens);
    fields.required("workload", what.workload);
    fields.required("seed", seed);
    const char* last = seed.data() + seed.size();
    const auto [end, error] = std::from_chars(seed.data(), last, what.seed);
    if (error != std::errc() || end != last) fields.fail("seed", "expected a number as a text");
    if (what.tokens < 1 || what.tokens > kMaxTokens) fields.fail("tokens", "out of range");
  });
  return what;
}

const char* scale_name(Scale scale) { return scale == Scale::kFull ? "full" : "subset"; }

Scale read_scale(JsonReader& reader) {
  std::string name;
  reader.required("scale", name);
  if (name != "full" && name != "subset") reader.fail("scale", "is neither full nor subset");
  return name == "subset" ? Scale::kSubset : Scale::kFull;
}

Json layouts_to_json(std::span<const WeightLayout> layouts) {
  Json list = Json::array();
  for (const WeightLayout& layout : layouts) {
    list.push_back({{"runner", layout.runner}, {"layout", layout.layout}});
  }
  return list;
}

std::vector<WeightLayout> read_layouts(JsonReader& reader) {
  std::vector<WeightLayout> layouts;
  reader.objects("layouts", kMaxLayouts, [&](JsonReader& item) {
    WeightLayout& layout = layouts.emplace_back();
    item.required("runner", layout.runner);
    item.required("layout", layout.layout);
  });
  return layouts;
}

Json tensors_to_json(const Tensors& tensors) {
  Json list = Json::array();
  for (const Tensor& tensor : tensors) {
    list.push_back(
        {{"name", tensor.name}, {"type", to_string(tensor.type)}, {"shape", tensor.shape}});
  }
  return list;
}

Tensors read_tensors(JsonReader& reader, const char* name) {
  Tensors tensors;
  int64_t bytes = 0;
  reader.objects(name, kMaxTensors, [&](JsonReader& item) {
    Json shape;
    item.members([&](const std::string& field, const Json& value) {
      if (field == "shape") shape = value;
    });
    tensors.push_back(read_tensor(item, shape));
    if (!item.ok()) return;
    bytes += static_cast<int64_t>(tensors.back().bytes());
    if (bytes > kMaxBytes) item.fail("shape", "larger than any call's arguments");
  });
  return tensors;
}

Result<std::vector<std::vector<std::byte>>> fetch_tensors(Tensors& tensors,
                                                          const Descriptor& file) {
  std::vector<size_t> lengths;
  for (const Tensor& tensor : tensors) lengths.push_back(tensor.bytes());
  MOETUNE_ASSIGN_OR_RETURN(auto pieces, read_memory_file(file, lengths));
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = pieces[i].data();
  return pieces;
}

Result<Descriptor> file_of(const Tensors& tensors) {
  std::vector<std::span<const std::byte>> pieces;
  for (const Tensor& tensor : tensors) {
    pieces.emplace_back(tensor.as<const std::byte>(), tensor.bytes());
  }
  return make_memory_file(pieces);
}

namespace {

void add_bytes(uint64_t& digest, const Tensors& tensors) {
  for (const Tensor& tensor : tensors) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.data);
    const size_t count = bytes == nullptr ? 0 : tensor.bytes();
    for (size_t i = 0; i < count; ++i) digest = (digest ^ bytes[i]) * 0x100000001b3u;
  }
}

}  // namespace

Result<std::string> data_digest(Workbench& bench, const Case& what) {
  uint64_t digest = 0xcbf29ce484222325u;
  WeightSource& weights = bench.weights(Scale::kFull);
  if (weights.chunks() > 0) {
    MOETUNE_ASSIGN_OR_RETURN(const Tensors chunk, weights.chunk(0));
    add_bytes(digest, chunk);
  }
  MOETUNE_ASSIGN_OR_RETURN(const Tensors arguments, bench.arguments(what, Scale::kFull, 0));
  add_bytes(digest, arguments);
  return fmt::format("{:016x}", digest);
}

Json ceilings_to_json(const Ceilings& ceilings) {
  return Json{{"read_bytes", ceilings.read_bytes},
              {"read_bytes_per_s", ceilings.read_bytes_per_s},
              {"read", ceilings.read_name},
              {"operations_per_s", ceilings.operations_per_s},
              {"operations", ceilings.operations_name}};
}

Ceilings read_ceilings(JsonReader& reader) {
  Ceilings ceilings;
  int64_t bytes = -1;
  double read = -1;
  reader.required("read_bytes", bytes);
  reader.optional("read_bytes_per_s", read);
  reader.optional("read", ceilings.read_name);
  reader.optional("operations_per_s", ceilings.operations_per_s);
  reader.optional("operations", ceilings.operations_name);
  const auto is_rate = [](double value) { return std::isfinite(value) && value >= 0; };
  if (bytes < 0) reader.fail("read_bytes", "no size");
  if (!is_rate(read)) reader.fail("read_bytes_per_s", "no rate");
  if (!is_rate(ceilings.operations_per_s)) reader.fail("operations_per_s", "no rate");
  ceilings.read_bytes = static_cast<size_t>(std::max<int64_t>(bytes, 0));
  ceilings.read_bytes_per_s = read;
  return ceilings;
}

Json error_to_json(const Error& error) {
  return Json{{"code", to_string(error.code)}, {"message", error.message}, {"hint", error.hint}};
}

Error read_error(JsonReader& reader) {
  Error error;
  std::string code;
  reader.required("code", code);
  reader.required("message", error.message);
  reader.optional("hint", error.hint);
  const auto* known = std::find_if(kCodes.begin(), kCodes.end(),
                                   [&](ErrorCode each) { return code == to_string(each); });
  if (known != kCodes.end()) error.code = *known;
  return error;
}

Json sample_to_json(const Sample& sample) {
  Json json{{"us", sample.us}};
  if (!std::isfinite(sample.us)) json["us"] = nullptr;
  if (sample.state.clock_mhz > 0) json["clock_mhz"] = sample.state.clock_mhz;
  if (sample.state.throttle_reasons > 0) json["throttle_reasons"] = sample.state.throttle_reasons;
  if (sample.state.temperature_c > 0) json["temperature_c"] = sample.state.temperature_c;
  if (sample.state.power_w > 0) json["power_w"] = sample.state.power_w;
  return json;
}

Sample read_sample(JsonReader& reader) {
  Sample sample{.us = std::numeric_limits<double>::quiet_NaN(), .state = {}};
  bool is_number = true;
  reader.members([&](const std::string& name, const Json& value) {
    if (name == "us") is_number = !value.is_null();
  });
  if (is_number) reader.optional("us", sample.us);
  reader.optional("clock_mhz", sample.state.clock_mhz);
  reader.optional("throttle_reasons", sample.state.throttle_reasons);
  reader.optional("temperature_c", sample.state.temperature_c);
  reader.optional("power_w", sample.state.power_w);
  return sample;
}

}  // namespace moetune::worker
