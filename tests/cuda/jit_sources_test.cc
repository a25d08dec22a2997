#include "cuda/jit_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/embedded_sources.h"

namespace moetune::cuda {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const CompileRequest kRequest{.label = "a candidate",
                              .arch = {9, 0},
                              .source = "#include \"cuda/kernels/ceilings.cuh\"\n",
                              .kernels = {"moetune::kernels::read_once<4>"},
                              .options = {}};

std::string key_of(const CompileRequest& request, const std::string& compiler = "nvrtc 13.0") {
  const auto job = make_compile_job(request);
  EXPECT_TRUE(job.ok()) << job.error().message;
  return compile_key(*job, compiler);
}

TEST(EmbeddedSources, HoldTheDeviceCodeUnderTheNamesThatIncludesUse) {
  EXPECT_THAT(embedded_source_names(), Contains("cuda/kernels/ceilings.cuh"));
  for (const EmbeddedSource& source : embedded_sources()) {
    EXPECT_EQ(source.text.data()[source.text.size()], '\0') << source.name;
    EXPECT_EQ(source.text.find('\0'), std::string_view::npos) << source.name;
  }
}

TEST(CompileJob, BringsEveryIncludeOnceWithStandardHeadersInSmall) {
  const auto job = make_compile_job(kRequest);
  ASSERT_TRUE(job.ok()) << job.error().message;
  std::vector<std::string> names;
  for (const NamedText& header : job->headers) names.push_back(header.name);
  EXPECT_THAT(names, ::testing::ElementsAre("cstdint", "cuda/kernels/ceilings.cuh"));
  EXPECT_THAT(job->headers[0].text, HasSubstr("uint64_t"));
  EXPECT_THAT(job->options, Contains("--gpu-architecture=sm_90"));
}

TEST(CompileJob, NamesAnIncludeThatIsNotThereAndWhoWantsIt) {
  CompileRequest request = kRequest;
  request.source =
      "#include \"cuda/kernels/ceilings.cuh\"\n  # include <vector>\n#include <vector>\n";
  const auto job = make_compile_job(request);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(job.error().message, HasSubstr("a candidate includes vector"));
}

TEST(CompileJob, NeedsAKernel) {
  CompileRequest request = kRequest;
  request.kernels.clear();
  EXPECT_FALSE(make_compile_job(request).ok());
}

TEST(CompileKey, ChangesWithEverythingThatChangesTheCode) {
  const std::string key = key_of(kRequest);
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(key_of(kRequest), key);
  EXPECT_NE(key_of(kRequest, "nvrtc 13.1"), key);

  CompileRequest other = kRequest;
  other.arch = {10, 0};
  EXPECT_NE(key_of(other), key);
  other = kRequest;
  other.arch.suffix = 'a';
  EXPECT_NE(key_of(other), key);
  other = kRequest;
  other.kernels = {"moetune::kernels::read_once<8>"};
  EXPECT_NE(key_of(other), key);
  other = kRequest;
  other.options = {"-DX"};
  EXPECT_NE(key_of(other), key);
  other = kRequest;
  other.source += "\n";
  EXPECT_NE(key_of(other), key);

  auto job = make_compile_job(kRequest);
  ASSERT_TRUE(job.ok());
  job->headers[1].text += "// changed";
  EXPECT_NE(compile_key(*job, "nvrtc 13.0"), key);
}

TEST(CompileKey, DoesNotDependOnWhoAsks) {
  CompileRequest other = kRequest;
  other.label = "another candidate";
  EXPECT_EQ(key_of(other), key_of(kRequest));
}

TEST(CompileKey, KeepsListsApart) {
  CompileRequest as_kernel = kRequest;
  as_kernel.kernels = {"a", "options", "b"};
  CompileRequest as_option = kRequest;
  as_option.kernels = {"a"};
  as_option.options = {"b"};
  EXPECT_NE(key_of(as_kernel), key_of(as_option));
}

}  // namespace
}  // namespace moetune::cuda
