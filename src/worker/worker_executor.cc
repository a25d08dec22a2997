// The Executor whose candidates run in a helper process.
//
// It remembers what it was told to load and select, so that a new helper can be brought to where
// the old one was: sync() sends whatever the living helper does not have yet.

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "base/host.h"
#include "base/status_macros.h"
#include "tuner/configuration.h"
#include "worker/host_state.h"
#include "worker/messages.h"
#include "worker/worker_host.h"

namespace moetune {

using worker::Reply;
using Kind = worker::Reply::Kind;

namespace {

// What parent and helper must make alike: a few rows, of a workload that every router has.
const Case kExample{.tokens = 4};

std::string identity(const Candidate& candidate) {
  return fmt::format("{}@{}", candidate.text(), candidate.runner_version);
}

}  // namespace

class WorkerExecutor final : public Executor {
 public:
  WorkerExecutor(std::shared_ptr<WorkerHost> owner, WorkerPlace place)
      : owner_(std::move(owner)), host_(*owner_->state_), place_(std::move(place)) {}
  ~WorkerExecutor() override { unload(); }

  /// Opens the place.
  Status open() { return sync(); }
  const WorkerPolicy& policy() const { return host_.options.policy; }
  /// The answer to a request that neither loads nor runs anything.
  Result<Json> question(Json request, double limit_s, const char* doing);

  Status load(std::span<const WeightLayout> layouts, Scale scale) override;
  Status select(const Case& c, int samples) override;
  int prefetch(std::span<const Candidate> candidates, int64_t tokens) override;
  Result<CheckOutput> check(const Candidate& candidate, int sample,
                            std::span<const int64_t> rows) override;
  Result<std::vector<Sample>> measure(std::span<const Candidate* const> order, int stage,
                                      int calls) override;
  void unload() override;

 private:
  struct Load {
    std::vector<WeightLayout> layouts;
    Scale scale = Scale::kFull;
  };
  struct Selection {
    Case what;
    int samples = 1;
  };
  // A selection's arguments as they are sent.
  struct Given {
    Case what;
    Scale scale = Scale::kFull;
    Json arguments;
    std::vector<Descriptor> files;  // One for each sample.
    size_t bytes = 0;
  };

  // Starts a helper if need be and gives it what it lacks. Errors are the helper's.
  Status sync();
  // One step of that; nothing where nothing is lacking.
  std::optional<Reply> next_step();
  Reply open_session();
  Reply send_load();
  Reply send_selection();
  Result<const Given*> arguments_of(const Selection& selection);
  // The same before a candidate's request, unless it is one that must not be made: what fails is
  // not the candidate's fault.
  Status admit(const Candidate& candidate);
  Result<Reply> ask(const Candidate& candidate, Json request, double run_s);
  Error candidate_error(const Candidate& candidate, Error error);
  Result<CheckOutput> read_check(const Reply& reply);
  Result<Sample> measure_one(const Candidate& candidate, int stage, int calls);
  std::string spot() const;
  double run_limit_s(int calls);
  // Whether the helper makes the inputs that this process judges by.
  bool makes_data() const { return place_.bench != nullptr && !place_.sends_arguments; }
  Json request(const char* what) const { return Json{{"do", what}, {"session", session_}}; }

  std::shared_ptr<WorkerHost> owner_;
  WorkerHost::State& host_;
  WorkerPlace place_;
  worker::SessionId session_ = 0;

  std::optional<Load> wanted_load_;
  std::optional<Selection> wanted_selection_;
  std::list<Given> given_;  // The last one last.
  int helper_ = 0;          // The number of the helper that has the following.
  bool has_session_ = false;
  bool has_load_ = false;
  bool has_selection_ = false;
  std::string digest_;  // Of what this process judges by; empty: not worked out yet.

  std::map<std::string, double> first_run_s_;  // by spot
};

Status WorkerExecutor::sync() {
  while (true) {
    MOETUNE_RETURN_IF_ERROR(host_.ensure());
    if (helper_ != host_.started) {
      helper_ = host_.started;
      has_session_ = has_load_ = has_selection_ = false;
    }
    const std::optional<Reply> reply = next_step();
    if (!reply) return {};
    if (reply->kind == Kind::kError || reply->kind == Kind::kStopped) return reply->error;
    // After a death, ensure() brings a new helper, until it gives up.
  }
}

std::optional<Reply> WorkerExecutor::next_step() {
  if (!has_session_) {
    Reply reply = open_session();
    has_session_ = reply.kind == Kind::kAnswer;
    return reply;
  }
  if (wanted_load_ && !has_load_) {
    Reply reply = send_load();
    has_load_ = reply.kind == Kind::kAnswer;
    return reply;
  }
  if (wanted_selection_ && !has_selection_) {
    Reply reply = send_selection();
    has_selection_ = reply.kind == Kind::kAnswer;
    return reply;
  }
  return std::nullopt;
}

Reply WorkerExecutor::open_session() {
  if (session_ == 0) session_ = ++host_.last_session;
  Json open = request("open");
  open["problem"] = worker::problem_to_json(place_.problem);
  open["options"] = strings_to_json(place_.options);
  if (makes_data()) {
    if (digest_.empty()) {
      auto digest = worker::data_digest(*place_.bench, kExample);
      if (!digest.ok()) return {.kind = Kind::kError, .error = std::move(digest).error()};
      digest_ = std::move(digest).value();
    }
    open["case"] = worker::case_to_json(kExample);
  }
  const int deaths = host_.deaths_in_row;
  Reply reply = host_.ask(std::move(open), {}, host_.options.policy.start_s, "opening its device");
  if (reply.kind != Kind::kAnswer) return reply;
  host_.deaths_in_row = deaths;  // It has not run anything yet.
  std::string device;
  std::string digest;
  JsonReader reader(reply.answer.fields, "open");
  reader.required("device", device);
  reader.optional("digest", digest);
  if (!reader.ok()) return {.kind = Kind::kError, .error = reader.error()};
  if (!place_.device_key.empty() && place_.device_key != device) {
    return {.kind = Kind::kError,
            .error = {ErrorCode::kUnsupported,
                      fmt::format("the helper process sees another device: '{}', not '{}'", device,
                                  place_.device_key)}};
  }
  if (makes_data() && digest != digest_) {
    return {.kind = Kind::kError,
            .error = {ErrorCode::kUnsupported,
                      fmt::format("the helper process makes other data: {} of {}, not {}", digest,
                                  place_.problem.key(), digest_),
                      "install moetune and moetune-worker of one build together"}};
  }
  return reply;
}

Reply WorkerExecutor::send_load() {
  Json load = request("load");
  load["layouts"] = worker::layouts_to_json(wanted_load_->layouts);
  load["scale"] = worker::scale_name(wanted_load_->scale);
  std::span<const Descriptor> files;
  if (place_.weights) {
    const auto weights = place_.weights->at(wanted_load_->scale);
    if (!weights.ok()) return {.kind = Kind::kError, .error = weights.error()};
    load["weights"] = worker::tensors_to_json((*weights)->tensors);
    files = std::span(&(*weights)->file, 1);
  }
  return host_.ask(std::move(load), files, host_.options.policy.load_s, "packing weights");
}

Reply WorkerExecutor::send_selection() {
  Json select = request("select");
  select["case"] = worker::case_to_json(wanted_selection_->what);
  select["samples"] = wanted_selection_->samples;
  if (!place_.sends_arguments)
    return host_.ask(std::move(select), {}, host_.options.policy.load_s, "making inputs");
  auto given = arguments_of(*wanted_selection_);
  if (!given.ok()) return {.kind = Kind::kError, .error = std::move(given).error()};
  select["arguments"] = (*given)->arguments;
  return host_.ask(std::move(select), (*given)->files, host_.options.policy.load_s,
                   "making inputs");
}

// The tuner comes back to a case several times, and making its inputs takes longer than sending
// them.
Result<const WorkerExecutor::Given*> WorkerExecutor::arguments_of(const Selection& selection) {
  const Scale scale = wanted_load_ ? wanted_load_->scale : Scale::kFull;
  const auto known = std::find_if(given_.begin(), given_.end(), [&](const Given& given) {
    return given.what == selection.what && given.scale == scale &&
           given.files.size() == static_cast<size_t>(selection.samples);
  });
  if (known != given_.end()) {
    given_.splice(given_.end(), given_, known);
    return &given_.back();
  }
  Given given{selection.what, scale, Json::array(), {}, 0};
  for (int sample = 0; sample < selection.samples; ++sample) {
    MOETUNE_ASSIGN_OR_RETURN(Tensors arguments,
                             place_.bench->arguments(selection.what, scale, sample));
    const auto inputs = arguments.end() - place_.bench->outputs();
    const Tensors outputs(inputs, arguments.end());
    arguments.erase(inputs, arguments.end());
    MOETUNE_ASSIGN_OR_RETURN(Descriptor file, worker::file_of(arguments));
    given.arguments.push_back({{"inputs", worker::tensors_to_json(arguments)},
                               {"outputs", worker::tensors_to_json(outputs)}});
    given.files.push_back(std::move(file));
    for (const Tensor& tensor : arguments) given.bytes += tensor.bytes();
  }
  given_.push_back(std::move(given));
  // A sixteenth of what memory is free, the newest in any case.
  constexpr size_t kMostFiles = 256;  // A process may have 1024 open, as a rule.
  const size_t most = host_available_memory_bytes() / 16;
  size_t bytes = 0, files = 0;
  for (const Given& each : given_) bytes += each.bytes, files += each.files.size();
  while (given_.size() > 1 && (bytes > most || files > kMostFiles)) {
    bytes -= given_.front().bytes;
    files -= given_.front().files.size();
    given_.pop_front();
  }
  return &given_.back();
}

Status WorkerExecutor::load(std::span<const WeightLayout> layouts, Scale scale) {
  wanted_load_ = Load{{layouts.begin(), layouts.end()}, scale};
  wanted_selection_.reset();
  has_load_ = has_selection_ = false;
  Status done = sync();
  if (!done.ok()) wanted_load_.reset();
  return done;
}

Status WorkerExecutor::select(const Case& c, int samples) {
  wanted_selection_ = Selection{c, std::max(1, samples)};
  has_selection_ = false;
  Status done = sync();
  if (!done.ok()) wanted_selection_.reset();
  return done;
}

Status WorkerExecutor::admit(const Candidate& candidate) {
  if (const auto known = host_.quarantined.find(identity(candidate));
      known != host_.quarantined.end())
    return known->second;
  Status done = sync();
  if (done.ok() || done.error().code == ErrorCode::kInterrupted) return done;
  if (host_.trouble.empty())
    host_.trouble = "a new helper process could not go on: " + done.error().message;
  return Error{ErrorCode::kInterrupted, done.error().message, done.error().hint};
}

int WorkerExecutor::prefetch(std::span<const Candidate> candidates, int64_t tokens) {
  if (!host_.helper || helper_ != host_.started || !has_session_) return 0;
  Json hint = request("prefetch");
  hint["tokens"] = tokens;
  Json& list = hint["candidates"] = Json::array();
  std::vector<int> positions;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (host_.quarantined.contains(identity(candidates[i]))) continue;
    list.push_back(worker::candidate_to_json(candidates[i]));
    positions.push_back(static_cast<int>(i));
  }
  const Reply reply = host_.ask(std::move(hint), {}, host_.options.policy.start_s, "looking ahead");
  if (reply.kind != Kind::kAnswer) return 0;  // Whoever needs the helper next meets its trouble.
  int first = 0;
  JsonReader reader(reply.answer.fields, "prefetch");
  reader.optional("first", first);
  if (!reader.ok() || first >= static_cast<int>(positions.size())) return 0;
  return first < 0 ? -1 : positions[static_cast<size_t>(first)];
}

Error WorkerExecutor::candidate_error(const Candidate& candidate, Error error) {
  if (error.message.find(candidate.text()) == std::string::npos)
    error.message = fmt::format("{}: {}", candidate.text(), error.message);
  return error;
}

Result<Reply> WorkerExecutor::ask(const Candidate& candidate, Json request, double run_s) {
  Reply reply = host_.ask(std::move(request), {}, run_s, "running");
  if (reply.kind == Kind::kAnswer) return reply;
  Error error = candidate_error(candidate, std::move(reply.error));
  if (reply.kind == Kind::kDied) host_.quarantined.emplace(identity(candidate), error);
  return error;
}

// A helper that answers what makes no sense is as good as dead: the candidate has broken it.
Result<CheckOutput> WorkerExecutor::read_check(const Reply& reply) {
  CheckOutput output;
  JsonReader reader(reply.answer.fields, "check");
  reader.required("damage", output.damage);
  reader.optional("compile_seconds", output.compile_seconds);
  output.outputs = worker::read_tensors(reader, "outputs");
  if (!reader.ok()) return reader.error();
  if (reply.answer.files.size() != 1) return Error{ErrorCode::kParse, "check: no rows came"};
  MOETUNE_ASSIGN_OR_RETURN(output.storage,
                           worker::fetch_tensors(output.outputs, reply.answer.files[0]));
  return output;
}

Result<CheckOutput> WorkerExecutor::check(const Candidate& candidate, int sample,
                                          std::span<const int64_t> rows) {
  MOETUNE_RETURN_IF_ERROR(admit(candidate));
  Json check = request("check");
  check["candidate"] = worker::candidate_to_json(candidate);
  check["sample"] = sample;
  check["rows"] = rows;
  MOETUNE_ASSIGN_OR_RETURN(const Reply reply, ask(candidate, std::move(check), run_limit_s(1)));
  auto output = read_check(reply);
  if (!output.ok()) {
    Error error = candidate_error(candidate, {ErrorCode::kRun, output.error().message});
    host_.quarantined.emplace(identity(candidate), error);
    host_.discard(error.message);
    return error;
  }
  first_run_s_.try_emplace(spot(), reply.run_seconds);
  return output;
}

Result<std::vector<Sample>> WorkerExecutor::measure(std::span<const Candidate* const> order,
                                                    int stage, int calls) {
  std::vector<Sample> samples;
  samples.reserve(order.size());
  // One request for each, so that whoever kills the helper is known.
  for (const Candidate* candidate : order) {
    MOETUNE_ASSIGN_OR_RETURN(const Sample sample, measure_one(*candidate, stage, calls));
    samples.push_back(sample);
  }
  return samples;
}

Result<Sample> WorkerExecutor::measure_one(const Candidate& candidate, int stage, int calls) {
  MOETUNE_RETURN_IF_ERROR(admit(candidate));
  Json measure = request("measure");
  measure["candidates"].push_back(worker::candidate_to_json(candidate));
  measure["stage"] = stage;
  measure["calls"] = calls;
  const int all_calls = calls + (wanted_selection_ ? wanted_selection_->samples : 0);
  MOETUNE_ASSIGN_OR_RETURN(const Reply reply,
                           ask(candidate, std::move(measure), run_limit_s(all_calls)));
  std::vector<Sample> samples;
  JsonReader reader(reply.answer.fields, "measure");
  reader.objects("samples", 1,
                 [&](JsonReader& item) { samples.push_back(worker::read_sample(item)); });
  if (reader.ok() && samples.size() == 1) return samples[0];
  return candidate_error(candidate, {ErrorCode::kMeasurement, "no sample came back"});
}

Result<Json> WorkerExecutor::question(Json request, double limit_s, const char* doing) {
  MOETUNE_RETURN_IF_ERROR(sync());
  request["session"] = session_;
  Reply reply = host_.ask(std::move(request), {}, limit_s, doing);
  if (reply.kind != Kind::kAnswer) return std::move(reply.error);
  return std::move(reply.answer.fields);
}

void WorkerExecutor::unload() {
  given_.clear();
  const bool is_there = host_.helper && helper_ == host_.started && has_session_;
  wanted_load_.reset();
  wanted_selection_.reset();
  has_load_ = has_selection_ = false;
  if (is_there) host_.ask(request("unload"), {}, host_.options.policy.start_s, "freeing memory");
}

std::string WorkerExecutor::spot() const {
  if (!wanted_selection_) return {};
  const Case& what = wanted_selection_->what;
  return fmt::format("{} {} {} {}", what.tokens, what.workload, what.seed,
                     worker::scale_name(wanted_load_ ? wanted_load_->scale : Scale::kFull));
}

double WorkerExecutor::run_limit_s(int calls) {
  const WorkerPolicy& policy = host_.options.policy;
  if (const auto known = first_run_s_.find(spot()); known != first_run_s_.end())
    return std::max(policy.run_s, policy.run_factor * known->second * calls);
  double least_s = 0;
  if (place_.bench != nullptr && wanted_selection_) {
    const Scale scale = wanted_load_ ? wanted_load_->scale : Scale::kFull;
    const Work work = place_.bench->work(wanted_selection_->what, scale, 0);
    least_s = std::max(work.bytes, work.operations) / policy.slowest_rate;
  }
  return std::max(policy.first_run_s, least_s * calls);
}

Result<std::unique_ptr<Executor>> make_worker_executor(std::shared_ptr<WorkerHost> host,
                                                       WorkerPlace place) {
  if (place.sends_arguments && place.bench == nullptr) {
    return Error{ErrorCode::kInvalidArgument, "no workbench to take arguments from",
                 "set WorkerPlace::bench"};
  }
  auto executor = std::make_unique<WorkerExecutor>(std::move(host), std::move(place));
  MOETUNE_RETURN_IF_ERROR(executor->open());
  return std::unique_ptr<Executor>(std::move(executor));
}

namespace {

// For questions no data are needed.
WorkerPlace without_data(WorkerPlace place) {
  place.bench = nullptr;
  place.sends_arguments = false;
  place.weights = nullptr;
  return place;
}

}  // namespace

Result<Ceilings> measure_worker_ceilings(std::shared_ptr<WorkerHost> host, WorkerPlace place,
                                         size_t read_bytes) {
  WorkerExecutor executor(std::move(host), without_data(std::move(place)));
  MOETUNE_ASSIGN_OR_RETURN(const Json answer,
                           executor.question({{"do", "ceilings"}, {"read_bytes", read_bytes}},
                                             executor.policy().ceilings_s, "measuring ceilings"));
  JsonReader reader(answer, "ceilings");
  Ceilings ceilings = worker::read_ceilings(reader);
  if (!reader.ok()) return reader.error();
  return ceilings;
}

Result<WorkerQuestion> make_worker_question(std::shared_ptr<WorkerHost> host, WorkerPlace place) {
  auto executor = std::make_shared<WorkerExecutor>(std::move(host), without_data(std::move(place)));
  MOETUNE_RETURN_IF_ERROR(executor->open());
  return WorkerQuestion([executor](Json request) {
    return executor->question(std::move(request), executor->policy().start_s,
                              "answering a question");
  });
}

}  // namespace moetune
