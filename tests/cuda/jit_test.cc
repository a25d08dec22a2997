#include "cuda/jit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "cuda/nvrtc.h"

namespace moetune::cuda {
namespace {

namespace fs = std::filesystem;
using Origin = CompiledProgram::Origin;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kScale = R"(
template <int factor> __global__ void scale(float* x) { x[threadIdx.x] *= factor; }
template <int bytes> __global__ void hold(int* x) {
  __shared__ char held[bytes];
  held[threadIdx.x] = static_cast<char>(x[0]);
  __syncthreads();
  x[0] = held[(threadIdx.x + 1) % bytes];
}
)";

CompileRequest request(int factor) {
  return {.label = "cuda.test{factor=" + std::to_string(factor) + "}",
          .arch = {9, 0},
          .source = kScale,
          .kernels = {"scale<" + std::to_string(factor) + ">"},
          .options = {}};
}

class JitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = load_nvrtc(); !nvrtc.ok())
      GTEST_SKIP() << nvrtc.error().message << "; " << nvrtc.error().hint;
    std::string pattern = ::testing::TempDir() + "jit_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    std::error_code ignored;
    if (!root_.empty()) fs::remove_all(root_, ignored);
  }

  JitOptions options() const {
    JitOptions options;
    options.cache_folder = (root_ / "jit").string();
    options.jobs = 2;
    return options;
  }

  fs::path root_;
};

CompiledProgramPtr compile(Jit& jit, const CompileRequest& wanted) {
  auto program = jit.compile(wanted);
  EXPECT_TRUE(program.ok()) << program.error().message;
  return program.ok() ? *program : nullptr;
}

TEST_F(JitTest, CompilesOnceAndRemembersInMemoryAndOnDisk) {
  Jit jit(options());
  const auto first = compile(jit, request(3));
  ASSERT_TRUE(first);
  EXPECT_EQ(first->origin, Origin::kCompiled);
  EXPECT_GT(first->cubin.size(), 500u);
  EXPECT_GT(first->kernels.at(0).resources.registers, 0);
  EXPECT_THAT(first->kernels.at(0).symbol, HasSubstr("scale"));
  EXPECT_EQ(compile(jit, request(3)), first);

  Jit later(options());
  const auto again = compile(later, request(3));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->origin, Origin::kDisk);
  EXPECT_EQ(again->cubin, first->cubin);
  EXPECT_EQ(again->kernels, first->kernels);
  EXPECT_EQ(again->compiler, first->compiler);

  EXPECT_EQ(jit.statistics().compiled, 1u);
  EXPECT_EQ(jit.statistics().from_memory, 1u);
  EXPECT_EQ(later.statistics().compiled, 0u);
  EXPECT_EQ(later.statistics().from_disk, 1u);
  EXPECT_THAT(later.take_notes(), IsEmpty());
}

TEST_F(JitTest, CompilesForEveryArchitectureWithoutItsDevice) {
  const auto nvrtc = load_nvrtc();
  Jit jit(options());
  std::vector<CompileRequest> requests;
  for (const char* arch :
       {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120", "sm_120a"}) {
    for (const char* kernel :
         {"moetune::kernels::read_once<4>", "moetune::kernels::fill_normal_bf16"}) {
      if (!(*nvrtc)->supports(*Architecture::parse(arch))) continue;
      requests.push_back({.label = arch,
                          .arch = *Architecture::parse(arch),
                          .source = "#include \"cuda/kernels/ceilings.cuh\"\n",
                          .kernels = {kernel},
                          .options = {}});
    }
  }
  const auto programs = jit.compile_all(requests);
  ASSERT_EQ(programs.size(), requests.size());
  for (size_t i = 0; i < programs.size(); ++i) {
    ASSERT_TRUE(programs[i].ok()) << programs[i].error().message;
    const CompiledProgram& program = **programs[i];
    EXPECT_EQ(program.arch, requests[i].arch);
    const KernelResources& resources = program.kernels.at(0).resources;
    EXPECT_GT(resources.registers, 0);
    EXPECT_EQ(resources.spill_store_bytes, 0) << requests[i].label;
    const Fit fit = plan_kernel(*find_limits(program.arch.sm()),
                                {.threads = 256, .registers = resources.registers});
    EXPECT_TRUE(fit.fits()) << fit.reason;
  }
  EXPECT_THAT(jit.take_notes(), IsEmpty());
}

TEST_F(JitTest, ReportsWhatTheKernelTakes) {
  CompileRequest two = request(2);
  two.kernels = {"hold<1000>", "hold<2000>"};
  Jit jit(options());
  const auto program = compile(jit, two);
  ASSERT_TRUE(program);
  EXPECT_EQ(program->kernels.at(0).resources.static_shared_bytes, 1000);
  EXPECT_EQ(program->kernels.at(1).resources.static_shared_bytes, 2000);
}

TEST_F(JitTest, AnErrorNamesTheTacticAndQuotesTheCompiler) {
  CompileRequest broken = request(1);
  broken.source = "__global__ void scale(float* x) { x[0] = undeclared_thing; }\n";
  broken.kernels = {"scale"};
  Jit jit(options());
  const auto program = jit.compile(broken);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::kCompile);
  EXPECT_THAT(program.error().message, HasSubstr("cuda.test{factor=1}"));
  EXPECT_THAT(program.error().message, HasSubstr("sm_90"));
  EXPECT_THAT(program.error().message, HasSubstr("undeclared_thing"));
  EXPECT_EQ(jit.statistics().failed, 1u);
  EXPECT_TRUE(compile(jit, request(1))) << "and the next program compiles";
}

TEST_F(JitTest, TooMuchStaticSharedMemoryIsTheCompilersError) {
  CompileRequest large = request(1);
  large.kernels = {"hold<60000>"};
  Jit jit(options());
  const auto program = jit.compile(large);
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(program.error().message, HasSubstr("shared"));
}

TEST_F(JitTest, AnArchitectureTheCompilerDoesNotKnowIsSaid) {
  CompileRequest future = request(1);
  future.arch = {99, 9};
  Jit jit(options());
  const auto program = jit.compile(future);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(program.error().message, HasSubstr("sm_999"));
}

TEST_F(JitTest, ADamagedEntryIsMadeAnewWithANote) {
  compile(*std::make_unique<Jit>(options()), request(4));
  int damaged = 0;
  for (const auto& file : fs::directory_iterator(root_ / "jit")) {
    fs::resize_file(file.path(), file.file_size() / 2);
    ++damaged;
  }
  ASSERT_EQ(damaged, 1);
  Jit jit(options());
  ASSERT_TRUE(compile(jit, request(4)));
  EXPECT_EQ(jit.statistics().compiled, 1u);
  EXPECT_THAT(jit.take_notes(), Contains(HasSubstr("damaged")));
  Jit later(options());
  EXPECT_EQ(compile(later, request(4))->origin, Origin::kDisk);
}

TEST_F(JitTest, WorksWithoutAPlaceForItsCache) {
  std::ofstream(root_ / "jit") << "a file where the folder should be";
  Jit jit(options());
  EXPECT_TRUE(compile(jit, request(5)));
  EXPECT_THAT(jit.take_notes(), Contains(HasSubstr("not kept")));
}

TEST_F(JitTest, WorksWithoutItsHelperProgram) {
  JitOptions elsewhere = options();
  elsewhere.worker_command = {"/nonexistent/moetune-jit"};
  Jit jit(elsewhere);
  const auto program = jit.compile(request(5));
  ASSERT_FALSE(program.ok()) << "a command that was named and is not there is an error";
  EXPECT_THAT(program.error().message, HasSubstr("/nonexistent/moetune-jit"));
  EXPECT_THAT(program.error().message, HasSubstr("factor=5"));
}

TEST_F(JitTest, PrecompiledHeadersChangeNothing) {
  CompileRequest wanted{.label = "ceilings",
                        .arch = {9, 0},
                        .source = "#include \"cuda/kernels/ceilings.cuh\"\n",
                        .kernels = {"moetune::kernels::read_once<4>"},
                        .options = {}};
  JitOptions with = options();
  with.cache_folder.clear();
  with.jobs = 1;
  JitOptions without = with;
  without.precompiled_header = false;
  Jit jit_with(with);
  Jit jit_without(without);
  for (const char* kernel : {"moetune::kernels::read_once<4>", "moetune::kernels::read_once<8>"}) {
    wanted.kernels = {kernel};
    const auto a = compile(jit_with, wanted);
    const auto b = compile(jit_without, wanted);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->kernels, b->kernels) << kernel;
  }
}

TEST_F(JitTest, ThreadsThatWantTheSameProgramCompileItOnce) {
  Jit jit(options());
  std::vector<CompiledProgramPtr> programs(6);
  {
    std::vector<std::jthread> threads;
    for (auto& program : programs)
      threads.emplace_back([&] { program = compile(jit, request(6)); });
  }
  for (const auto& program : programs) EXPECT_EQ(program, programs[0]);
  EXPECT_EQ(jit.statistics().compiled, 1u);
}

using JitThreadsTest = JitTest;

TEST_F(JitThreadsTest, ShareCompilersNotesAndCountersWhileEveryProgramFails) {
  JitOptions broken = options();
  broken.worker_command = {"/bin/sh", "-c", "head -c 8 <&3 >/dev/null"};
  broken.jobs = 3;
  Jit jit(broken);
  std::vector<CompileRequest> requests;
  for (int i = 0; i < 24; ++i) requests.push_back(request(i % 12));
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (const auto& answer : jit.compile_all(requests)) EXPECT_FALSE(answer.ok());
      });
      threads.emplace_back([&] { (void)jit.take_notes(), (void)jit.statistics(); });
    }
  }
  EXPECT_GE(jit.statistics().failed, 12u);
  EXPECT_EQ(jit.statistics().compiled, 0u);
}

TEST_F(JitTest, EightProcessesShareOneCache) {
  std::vector<pid_t> processes;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      Jit jit(options());
      bool ok = true;
      for (int factor = 0; factor < 3; ++factor)
        ok &= jit.compile(request((factor + i) % 3 + 10)).ok();
      ::_exit(ok ? 0 : 1);
    }
    processes.push_back(pid);
  }
  ::kill(processes[0], SIGKILL);
  for (size_t i = 0; i < processes.size(); ++i) {
    int status = 0;
    ASSERT_EQ(::waitpid(processes[i], &status, 0), processes[i]);
    const bool was_killed = i == 0;
    EXPECT_TRUE(was_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << i;
  }
  Jit jit(options());
  for (int factor = 10; factor < 13; ++factor)
    EXPECT_EQ(compile(jit, request(factor))->origin, Origin::kDisk);
  EXPECT_THAT(jit.take_notes(), IsEmpty());
}

}  // namespace
}  // namespace moetune::cuda
