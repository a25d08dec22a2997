#include "cuda/jit_sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/status_macros.h"
#include "cuda/embedded_sources.h"
#include "cuda/sha256.h"

namespace moetune::cuda {
namespace {

// Raised when the content of a cache entry changes its form.
constexpr std::string_view kFormat = "moetune jit 1";

// The embedded text that an include means: a source by its name, a standard header by its shim.
std::optional<std::string_view> find_embedded(std::string_view include) {
  const std::string shim = fmt::format("cuda/kernels/shim/{}.cuh", include);
  for (const EmbeddedSource& source : embedded_sources()) {
    if (source.name == include || source.name == shim) return source.text;
  }
  return std::nullopt;
}

// The names that a text includes, in order.
std::vector<std::string> included_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with("#include")) continue;
    const size_t open = line.find_first_of("\"<");
    const size_t close = line.find_first_of("\">", open + 1);
    if (open == std::string_view::npos || close == std::string_view::npos) continue;
    names.emplace_back(line.substr(open + 1, close - open - 1));
  }
  return names;
}

Status add_includes(std::string_view text, const std::string& includer,
                    std::vector<NamedText>& headers) {
  for (const std::string& name : included_names(text)) {
    const bool known = std::any_of(headers.begin(), headers.end(),
                                   [&](const NamedText& one) { return one.name == name; });
    if (known) continue;
    const auto found = find_embedded(name);
    if (!found) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} includes {}, which is not embedded", includer, name),
                   "device code lies below src/cuda/kernels and includes from the root of src/"};
    }
    headers.push_back({name, std::string(*found)});
    MOETUNE_RETURN_IF_ERROR(add_includes(*found, name, headers));
  }
  return {};
}

}  // namespace

Result<CompileJob> make_compile_job(const CompileRequest& request) {
  if (request.kernels.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: a program without kernels", request.label)};
  }
  CompileJob job;
  job.source = request.source;
  job.kernels = request.kernels;
  job.options = {fmt::format("--gpu-architecture={}", request.arch.text()), "--std=c++20",
                 "--device-as-default-execution-space", "--ptxas-options=-v"};
  job.options.insert(job.options.end(), request.options.begin(), request.options.end());
  MOETUNE_RETURN_IF_ERROR(add_includes(job.source, request.label, job.headers));
  std::sort(job.headers.begin(), job.headers.end(),
            [](const NamedText& a, const NamedText& b) { return a.name < b.name; });
  return job;
}

std::string compile_key(const CompileJob& job, const std::string& compiler) {
  Sha256 hash;
  hash.add_text(kFormat).add_text(compiler).add_text(job.source);
  for (const NamedText& header : job.headers) hash.add_text(header.name).add_text(header.text);
  // Ends each list, so that no item can pass for one of the next list.
  hash.add_text("kernels");
  for (const std::string& kernel : job.kernels) hash.add_text(kernel);
  hash.add_text("options");
  for (const std::string& option : job.options) hash.add_text(option);
  return to_hex(hash.digest());
}

}  // namespace moetune::cuda
