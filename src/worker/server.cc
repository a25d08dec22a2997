#include "worker/server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/status_macros.h"
#include "tuner/configuration.h"
#include "worker/announcing_runner.h"

namespace moetune::worker {
namespace {

constexpr size_t kMaxCandidates = 4096;
constexpr int64_t kMaxRows = int64_t{1} << 24;
constexpr int kMaxCalls = 1 << 16;
constexpr uint8_t kProbe = 0x5A;
constexpr int kMaxSamples = static_cast<int>(LineChannel::kMaxFiles);

Error request_error(const JsonReader& request) {
  Error error = request.error();
  error.message = "request: " + error.message;
  return error;
}

Result<std::vector<Candidate>> read_candidates(JsonReader& request) {
  std::vector<Candidate> candidates;
  request.objects("candidates", kMaxCandidates,
                  [&](JsonReader& item) { read_candidate(item, candidates.emplace_back()); });
  if (!request.ok()) return request_error(request);
  return candidates;
}

std::vector<int64_t> read_rows(JsonReader& request) {
  std::vector<int64_t> rows;
  request.members([&](const std::string& name, const Json& value) {
    if (name != "rows") return;
    if (!value.is_array() || static_cast<int64_t>(value.size()) > kMaxRows)
      return request.fail(name, "expected an array of integers");
    for (const Json& row : value) {
      if (!row.is_number_integer()) return request.fail(name, "expected integers");
      rows.push_back(row.get<int64_t>());
    }
  });
  return rows;
}

}  // namespace

struct Server::Session {
  std::unique_ptr<Place> place;
  std::unique_ptr<GivenArguments> bench;
  std::vector<std::unique_ptr<AnnouncingRunner>> runners;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<DeviceBuffer> probe;
};

Server::Server(LineChannel& channel, const Registry& registry)
    : channel_(channel), registry_(registry) {}
Server::~Server() = default;

// Whether devices still do the simplest thing: some do nothing any more after a kernel's fault.
bool Server::devices_work() {
  return std::all_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    const Session& session = *entry.second;
    uint8_t byte = 0;
    Device& device = session.place->device();
    return device.fill(session.probe->data(), kProbe, 1).ok() &&
           device.download(&byte, session.probe->data(), 1).ok() && byte == kProbe;
  });
}

Status Server::run() {
  MOETUNE_RETURN_IF_ERROR(
      channel_.send({{"hello", kProgramName}, {"protocol", kProtocol}, {"version", version()}}));
  while (true) {
    MOETUNE_ASSIGN_OR_RETURN(std::optional<Line> request, channel_.next());
    if (request) {
      files_ = std::move(request->files);
      MOETUNE_RETURN_IF_ERROR(answer(request->fields));
      continue;
    }
    pollfd ready{channel_.socket(), POLLIN, 0};
    if (::poll(&ready, 1, -1) < 0 && errno != EINTR)
      return Error{ErrorCode::kIo, "cannot wait for requests"};
    MOETUNE_ASSIGN_OR_RETURN(const bool is_open, channel_.receive());
    if (!is_open) return {};
  }
}

Status Server::answer(const Json& request) {
  JsonReader reader(request, "");
  std::string what;
  request_ = 0;
  reader.optional("id", request_);
  reader.required("do", what);
  Result<Answer> done = Error{};
  try {
    done = reader.ok() ? perform(what, reader) : Result<Answer>(request_error(reader));
  } catch (const std::exception& e) {
    done = Error{ErrorCode::kInternal, fmt::format("{} threw: {}", what, e.what())};
  }
  if (request_ == 0) return {};  // A hint: nobody waits for an answer.
  Json line{{"id", request_}};
  if (!done.ok()) {
    line["error"] = error_to_json(done.error());
    if (!devices_work()) line["lost"] = true;
    return channel_.send(std::move(line));
  }
  line.update(done->fields);
  return channel_.send(std::move(line), done->files);
}

Result<Server::Answer> Server::perform(const std::string& what, JsonReader& request) {
  if (what == "open") return open(request);
  SessionId id = 0;
  request.required("session", id);
  if (!request.ok()) return request_error(request);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return Error{ErrorCode::kNotFound, fmt::format("there is no session {}", id), "open one"};
  }
  Session& session = *found->second;
  if (what == "load") return load(session, request);
  if (what == "select") return select(session, request);
  if (what == "check") return check(session, request);
  if (what == "measure") return measure(session, request);
  if (what == "ceilings") return ceilings(session, request);
  if (what == "prefetch") return prefetch(session, request);
  if (what == "unload") {
    session.executor->unload();
    return Answer{};
  }
  return Error{ErrorCode::kUnsupported, fmt::format("'{}' is no request", what)};
}

Result<Server::Answer> Server::open(JsonReader& request) {
  SessionId id = 0;
  request.required("session", id);
  const Problem problem = read_problem(request);
  PlaceOptions options;
  request.optional_object("options", [&](JsonReader& names) { options = read_strings(names); });
  bool wants_digest = false;
  request.members([&](const std::string& name, const Json&) { wants_digest |= name == "case"; });
  Case example;
  if (wants_digest) example = read_case(request);
  if (!request.ok()) return request_error(request);

  sessions_.erase(id);
  auto session = std::make_unique<Session>();
  MOETUNE_ASSIGN_OR_RETURN(session->place, registry_.make(problem, options));
  MOETUNE_ASSIGN_OR_RETURN(session->probe, session->place->device().allocate(1));
  session->bench = std::make_unique<GivenArguments>(session->place->bench());
  std::vector<TunableRunner*> pointers;
  Json runners = Json::array();
  for (TunableRunner* runner : session->place->runners()) {
    session->runners.push_back(
        std::make_unique<AnnouncingRunner>(*runner, [this](const char* phase) {
          // Where this fails, the answer will fail too, and end the conversation.
          (void)channel_.send({{"id", request_}, {"at", phase}});
        }));
    pointers.push_back(session->runners.back().get());
    runners.push_back({{"name", runner->name()}, {"version", runner->version()}});
  }
  session->executor =
      make_in_process_executor(session->place->device(), *session->bench, std::move(pointers));
  Answer answer{.fields = {{"device", session->place->device().properties().key()},
                           {"runners", std::move(runners)}},
                .files = {}};
  if (wants_digest) {
    MOETUNE_ASSIGN_OR_RETURN(answer.fields["digest"],
                             data_digest(session->place->bench(), example));
  }
  sessions_[id] = std::move(session);
  return answer;
}

Result<Server::Answer> Server::load(Session& session, JsonReader& request) {
  const std::vector<WeightLayout> layouts = read_layouts(request);
  const Scale scale = read_scale(request);
  if (!request.ok()) return request_error(request);
  MOETUNE_RETURN_IF_ERROR(session.executor->load(layouts, scale));
  return Answer{};
}

// {"arguments": [{"inputs": [...], "outputs": [...]}, ...]}, with a file of input data for each.
Result<std::vector<GivenSample>> Server::given_samples(const Session& session,
                                                       JsonReader& request) {
  std::vector<GivenSample> samples;
  std::vector<Tensors> outputs;
  request.objects("arguments", kMaxSamples, [&](JsonReader& item) {
    samples.emplace_back().arguments = read_tensors(item, "inputs");
    outputs.push_back(read_tensors(item, "outputs"));
    // What is taken for an input is read.
    if (outputs.back().size() != static_cast<size_t>(session.bench->outputs()))
      item.fail("outputs", fmt::format("the operator has {}", session.bench->outputs()));
  });
  if (!request.ok()) return request_error(request);
  if (files_.size() != samples.size()) {
    return Error{ErrorCode::kParse,
                 fmt::format("{} files came with {} samples", files_.size(), samples.size())};
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    Tensors& arguments = samples[i].arguments;
    MOETUNE_ASSIGN_OR_RETURN(samples[i].storage, fetch_tensors(arguments, files_[i]));
    arguments.insert(arguments.end(), outputs[i].begin(), outputs[i].end());
  }
  return samples;
}

Result<Server::Answer> Server::select(Session& session, JsonReader& request) {
  const Case what = read_case(request);
  int samples = 1;
  request.optional("samples", samples);
  if (samples < 1 || samples > kMaxSamples) request.fail("samples", "not 1 to 64");
  bool is_given = false;
  request.members([&](const std::string& name, const Json&) { is_given |= name == "arguments"; });
  if (!request.ok()) return request_error(request);
  std::vector<GivenSample> given;
  if (is_given) {
    MOETUNE_ASSIGN_OR_RETURN(given, given_samples(session, request));
  }
  session.bench->give(std::move(given));
  MOETUNE_RETURN_IF_ERROR(session.executor->select(what, samples));
  return Answer{};
}

Result<Server::Answer> Server::check(Session& session, JsonReader& request) {
  Candidate candidate;
  int sample = 0;
  request.object("candidate", [&](JsonReader& fields) { read_candidate(fields, candidate); });
  request.optional("sample", sample);
  const std::vector<int64_t> rows = read_rows(request);
  if (!request.ok()) return request_error(request);
  MOETUNE_ASSIGN_OR_RETURN(const CheckOutput output,
                           session.executor->check(candidate, sample, rows));
  Answer answer;
  answer.fields = {{"damage", output.damage},
                   {"compile_seconds", output.compile_seconds},
                   {"outputs", tensors_to_json(output.outputs)}};
  MOETUNE_ASSIGN_OR_RETURN(Descriptor file, file_of(output.outputs));
  answer.files.push_back(std::move(file));
  return answer;
}

Result<Server::Answer> Server::prefetch(Session& session, JsonReader& request) {
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, read_candidates(request));
  int64_t tokens = 0;
  request.optional("tokens", tokens);
  if (!request.ok()) return request_error(request);
  Answer answer;
  answer.fields = {{"first", session.executor->prefetch(candidates, tokens)}};
  return answer;
}

Result<Server::Answer> Server::ceilings(Session& session, JsonReader& request) {
  int64_t read_bytes = 0;
  request.required("read_bytes", read_bytes);
  if (read_bytes < 0) request.fail("read_bytes", "no size");
  if (!request.ok()) return request_error(request);
  MOETUNE_ASSIGN_OR_RETURN(const Ceilings measured,
                           session.place->measure_ceilings(static_cast<size_t>(read_bytes)));
  return Answer{.fields = ceilings_to_json(measured), .files = {}};
}

Result<Server::Answer> Server::measure(Session& session, JsonReader& request) {
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, read_candidates(request));
  int stage = -1;
  int calls = 1;
  request.optional("stage", stage);
  request.optional("calls", calls);
  if (calls < 1 || calls > kMaxCalls) request.fail("calls", "out of range");
  if (!request.ok()) return request_error(request);
  std::vector<const Candidate*> order;
  for (const Candidate& candidate : candidates) order.push_back(&candidate);
  MOETUNE_ASSIGN_OR_RETURN(const std::vector<Sample> samples,
                           session.executor->measure(order, stage, calls));
  Answer answer;
  Json& list = answer.fields["samples"] = Json::array();
  for (const Sample& sample : samples) list.push_back(sample_to_json(sample));
  return answer;
}

}  // namespace moetune::worker
