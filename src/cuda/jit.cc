#include "cuda/jit.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/environment.h"
#include "base/status_macros.h"
#include "cuda/compile.h"
#include "cuda/compile_pool.h"
#include "cuda/cubin_cache.h"
#include "cuda/embedded_sources.h"
#include "cuda/jit_sources.h"
#include "cuda/nvrtc.h"

namespace moetune::cuda {
namespace {

using nlohmann::json;
using Answer = Result<CompiledProgramPtr>;

constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;
constexpr int kQuotedLines = 12;
// Programs compiled ahead that are kept until somebody asks for them: more than a race looks ahead.
constexpr size_t kKeptAhead = 512;

int64_t cache_limit(const JitOptions& options) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  int64_t bytes = 0;
  if (const auto text = environment(Variable::kJitCacheBytes)) {
    std::from_chars(text->data(), text->data() + text->size(), bytes);
  }
  return bytes > 0 ? bytes : kDefaultCacheBytes;
}

std::vector<uint8_t> encode_program(const CompiledProgram& program) {
  json kernels = json::array();
  for (const CompiledKernel& kernel : program.kernels) {
    const KernelResources& r = kernel.resources;
    kernels.push_back({kernel.expression, kernel.symbol, r.registers, r.stack_bytes,
                       r.spill_store_bytes, r.spill_load_bytes, r.static_shared_bytes});
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(program.cubin.data());
  return json::to_msgpack({{"arch", program.arch.text()},
                           {"kernels", kernels},
                           {"cubin", json::binary({bytes, bytes + program.cubin.size()})},
                           {"seconds", program.compile_seconds},
                           {"compiler", program.compiler}});
}

// Nothing where an older or newer moetune wrote something else under this key.
std::optional<CompiledProgram> decode_program(const std::vector<uint8_t>& content) {
  const json value = json::from_msgpack(content, true, false);
  if (!value.is_object()) return std::nullopt;
  try {
    CompiledProgram program;
    auto arch = Architecture::parse(value.at("arch").get<std::string>());
    if (!arch.ok()) return std::nullopt;
    program.arch = *arch;
    for (const json& one : value.at("kernels")) {
      program.kernels.push_back(
          {one.at(0), one.at(1), {one.at(2), one.at(3), one.at(4), one.at(5), one.at(6)}});
    }
    const auto& cubin = value.at("cubin").get_binary();
    program.cubin.resize(cubin.size());
    if (!cubin.empty()) std::memcpy(program.cubin.data(), cubin.data(), cubin.size());
    program.compile_seconds = value.at("seconds");
    program.compiler = value.at("compiler");
    program.origin = CompiledProgram::Origin::kDisk;
    return program;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

Answer make_program(const CompileRequest& request, CompileOutcome outcome,
                    const std::string& compiler) {
  if (!outcome.ok && outcome.log.find("libnvrtc-builtins") != std::string::npos) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("NVRTC is not whole: {}", first_errors(outcome.log, kQuotedLines)),
                 "install it anew: libnvrtc and libnvrtc-builtins of one version belong together"};
  }
  if (!outcome.ok) {
    return Error{ErrorCode::kCompile,
                 fmt::format("{} does not compile for {}:\n  {}", request.label,
                             request.arch.text(), first_errors(outcome.log, kQuotedLines)),
                 "this tactic is left out; please report it with these lines"};
  }
  auto program = std::make_shared<CompiledProgram>();
  program->arch = request.arch;
  const std::vector<KernelResources> resources = parse_resources(outcome.log, outcome.symbols);
  for (size_t i = 0; i < request.kernels.size(); ++i) {
    program->kernels.push_back({request.kernels[i], outcome.symbols[i], resources[i]});
  }
  program->cubin = std::move(outcome.cubin);
  program->compile_seconds = outcome.seconds;
  program->compiler = compiler;
  return CompiledProgramPtr(std::move(program));
}

// What makes two requests of one process the same: the sources that includes mean do not change.
constexpr char kSeparator = '\0';
std::string identity_of(const CompileRequest& request) {
  std::string identity = request.arch.text() + kSeparator + request.source;
  for (const std::string& kernel : request.kernels) identity += kSeparator + kernel;
  identity += kSeparator;
  for (const std::string& option : request.options) identity += kSeparator + option;
  return identity;
}

Error name_request(const CompileRequest& request, Error error) {
  error.message = fmt::format("{} for {}: {}", request.label, request.arch.text(), error.message);
  return error;
}

}  // namespace

struct Jit::State {
  explicit State(JitOptions given) : options(std::move(given)) {
    jobs = options.jobs > 0 ? options.jobs
                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    open_cache();
  }

  void open_cache() {
    std::string folder = options.cache_folder;
    if (folder == "auto") {
      const auto parent = moetune::cache_folder();
      folder = parent ? *parent + "/jit" : "";
      if (!parent) note("neither XDG_CACHE_HOME nor HOME is set: compiled kernels are not kept");
    }
    if (folder.empty()) return;
    auto opened = CubinCache::open(folder, cache_limit(options));
    if (opened.ok()) {
      cache.emplace(std::move(*opened));
    } else {
      note(opened.error().message + ": compiled kernels are not kept");
    }
  }

  void note(std::string text) {
    const std::lock_guard lock(mutex);
    if (std::find(notes.begin(), notes.end(), text) == notes.end())
      notes.push_back(std::move(text));
  }

  // The compilers, started when the first program is not in any cache.
  CompilerPool* pool(const Nvrtc& nvrtc) {
    std::call_once(pool_made, [&] {
      const auto command =
          options.worker_command.empty() ? find_compile_worker() : options.worker_command;
      if (command.empty()) return;
      compilers = std::make_unique<CompilerPool>(command, nvrtc.path, jobs);
    });
    return compilers.get();
  }

  Result<CompileOutcome> run(const Nvrtc& nvrtc, CompileJob job) {
    if (CompilerPool* processes = pool(nvrtc)) {
      job.precompiled_header = options.precompiled_header && nvrtc.has_precompiled_headers();
      return processes->run(job, options.deadline);
    }
    note(
        "moetune-jit is not beside this program: kernels are compiled in this process, without a "
        "time limit");
    return run_compiler(nvrtc, job);
  }

  std::optional<CompiledProgram> from_disk(const std::string& key) {
    if (!cache) return std::nullopt;
    CubinCache::Found found = cache->find(key);
    if (!found.note.empty()) note(std::move(found.note));
    return found.content ? decode_program(*found.content) : std::nullopt;
  }

  Answer make(const Nvrtc& nvrtc, const CompileRequest& request, const CompileJob& job,
              const std::string& key) {
    if (auto program = from_disk(key)) {
      count([](JitStatistics& all) { ++all.from_disk; });
      return std::make_shared<const CompiledProgram>(std::move(*program));
    }
    auto outcome = run(nvrtc, job);
    if (!outcome.ok()) return name_request(request, std::move(outcome).error());
    const double seconds = outcome->seconds;
    Answer answer = make_program(request, std::move(*outcome), compiler_name(nvrtc));
    if (!answer.ok()) return answer;
    count([&](JitStatistics& all) { ++all.compiled, all.compile_seconds += seconds; });
    if (cache) {
      if (const auto stored = cache->put(key, encode_program(**answer)); !stored.ok())
        note(stored.error().message);
    }
    return answer;
  }

  static std::string compiler_name(const Nvrtc& nvrtc) { return "nvrtc " + nvrtc.version_text(); }

  template <typename Change>
  void count(Change change) {
    const std::lock_guard lock(mutex);
    change(statistics);
  }

  const JitOptions options;
  int jobs = 1;
  std::optional<CubinCache> cache;
  std::once_flag pool_made;
  std::unique_ptr<CompilerPool> compilers;

  std::mutex mutex;                                                       // Guards all below.
  std::map<std::string, std::weak_ptr<const CompiledProgram>> in_memory;  // by compile_key()
  std::map<std::string, std::weak_ptr<const CompiledProgram>> by_identity;
  std::set<std::string> refused;  // Identities of what did not compile.
  std::map<std::string, std::shared_future<Answer>> at_work;
  JitStatistics statistics;
  std::vector<std::string> notes;
  std::deque<CompileRequest> ahead;
  std::deque<CompiledProgramPtr> made_ahead;
  std::condition_variable_any more_ahead;
  std::vector<std::jthread> background;
};

Jit::Jit(JitOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Jit::~Jit() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ahead.clear();
  }
  state_->background.clear();
}

void Jit::prefetch(std::vector<CompileRequest> requests) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.ahead.assign(std::make_move_iterator(requests.begin()),
                     std::make_move_iterator(requests.end()));
  const auto work = [this, &state](const std::stop_token& stop) {
    std::unique_lock waiting(state.mutex);
    while (state.more_ahead.wait(waiting, stop, [&] { return !state.ahead.empty(); })) {
      const CompileRequest request = std::move(state.ahead.front());
      state.ahead.pop_front();
      waiting.unlock();
      const Answer answer = compile(request);
      waiting.lock();
      if (!answer.ok()) continue;
      state.made_ahead.push_back(*answer);
      if (state.made_ahead.size() > kKeptAhead) state.made_ahead.pop_front();
    }
  };
  while (static_cast<int>(state.background.size()) < std::max(1, state.jobs - 1)) {
    state.background.emplace_back(work);
  }
  state.more_ahead.notify_all();
}

bool Jit::has(const CompileRequest& request) const {
  const std::string identity = identity_of(request);
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->by_identity.find(identity);
  const bool is_held = found != state_->by_identity.end() && !found->second.expired();
  return is_held || state_->refused.contains(identity);
}

std::optional<CompiledProgramPtr> Jit::in_memory(const std::string& identity) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->by_identity.find(identity);
  if (found == state_->by_identity.end()) return std::nullopt;
  if (auto known = found->second.lock()) {
    ++state_->statistics.from_memory;
    return known;
  }
  return std::nullopt;
}

Answer Jit::compile(const CompileRequest& request) {
  const std::string identity = identity_of(request);
  if (const auto known = in_memory(identity)) return *known;
  MOETUNE_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, load_nvrtc());
  if (!nvrtc->supports(request.arch)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("NVRTC {} ({}) does not know {}", nvrtc->version_text(), nvrtc->path,
                             request.arch.text()),
                 "install a newer NVRTC: python3 -m pip install --upgrade nvidia-cuda-nvrtc"};
  }
  MOETUNE_ASSIGN_OR_RETURN(const CompileJob job, make_compile_job(request));
  const std::string key = compile_key(job, State::compiler_name(*nvrtc));

  // One thread makes a program; others that want the same one wait for it.
  std::promise<Answer> promise;
  {
    std::unique_lock lock(state_->mutex);
    if (auto known = state_->in_memory[key].lock()) {
      ++state_->statistics.from_memory;
      state_->by_identity[identity] = known;
      return known;
    }
    const auto [entry, first] = state_->at_work.try_emplace(key);
    if (!first) {
      const std::shared_future<Answer> other = entry->second;
      lock.unlock();
      return other.get();
    }
    entry->second = promise.get_future().share();
  }
  Answer answer = state_->make(*nvrtc, request, job, key);
  {
    const std::lock_guard lock(state_->mutex);
    if (answer.ok()) {
      state_->in_memory[key] = *answer;
      state_->by_identity[identity] = *answer;
    } else {
      ++state_->statistics.failed;
      state_->in_memory.erase(key);
      state_->refused.insert(identity);
    }
    state_->at_work.erase(key);
  }
  promise.set_value(answer);
  return answer;
}

std::vector<Answer> Jit::compile_all(std::span<const CompileRequest> requests) {
  std::vector<std::optional<Answer>> answers(requests.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (const auto known = in_memory(identity_of(requests[i]))) {
      answers[i] = *known;
    } else {
      missing.push_back(i);
    }
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++)
      answers[missing[i]] = compile(requests[missing[i]]);
  };
  {
    const size_t threads = std::min(missing.size(), static_cast<size_t>(state_->jobs));
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  std::vector<Answer> out;
  out.reserve(answers.size());
  for (auto& answer : answers) out.push_back(std::move(*answer));
  return out;
}

JitStatistics Jit::statistics() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statistics;
}

std::vector<std::string> Jit::take_notes() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->notes, {});
}

Jit& default_jit() {
  static Jit jit;
  return jit;
}

std::vector<std::string> embedded_source_names() {
  std::vector<std::string> names;
  for (const EmbeddedSource& source : embedded_sources()) names.emplace_back(source.name);
  return names;
}

}  // namespace moetune::cuda
