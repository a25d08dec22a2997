#include "cpu/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace moetune::cpu {
namespace {

class ChosenIsa : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("MOETUNE_CPU_ISA")) saved_ = value;
  }
  void TearDown() override { setenv("MOETUNE_CPU_ISA", saved_.c_str(), 1); }

 private:
  std::string saved_;
};

TEST_F(ChosenIsa, IsTheBestOneUnlessTheEnvironmentNamesAnother) {
  unsetenv("MOETUNE_CPU_ISA");
  EXPECT_EQ(*choose_isa(), supported_isas().back());
  for (const Isa isa : supported_isas()) {
    setenv("MOETUNE_CPU_ISA", to_string(isa), 1);
    EXPECT_EQ(*choose_isa(), isa);
  }
}

TEST_F(ChosenIsa, SaysWhatThereIsWhenTheNameIsUnknown) {
  setenv("MOETUNE_CPU_ISA", "sse9", 1);
  const Result<Isa> isa = choose_isa();
  ASSERT_FALSE(isa.ok());
  EXPECT_EQ(isa.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(isa.error().message.find("sse9"), std::string::npos);
  EXPECT_NE(isa.error().hint.find("portable"), std::string::npos);
}

TEST_F(ChosenIsa, IsRefusedWhereTheMachineLacksIt) {
  if (supported(Isa::kAvx512Bf16)) GTEST_SKIP() << "this machine has every instruction set";
  setenv("MOETUNE_CPU_ISA", "avx512_bf16", 1);
  const Result<Isa> isa = choose_isa();
  ASSERT_FALSE(isa.ok());
  EXPECT_EQ(isa.error().code, ErrorCode::kUnsupported);
}

TEST(Isa, NamesAreReadAsTheyAreWritten) {
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    EXPECT_EQ(parse_isa(to_string(isa)), isa);
  EXPECT_FALSE(parse_isa("avx"));
  EXPECT_FALSE(parse_isa(""));
}

TEST(Isa, TheProcessorsOwnAnswerIsTheCompilersToo) {
#if defined(__x86_64__)
  EXPECT_EQ(supported(Isa::kAvx2), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(supported(Isa::kAvx512), __builtin_cpu_supports("avx512f") &&
                                         __builtin_cpu_supports("avx512bw") &&
                                         __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(supported(Isa::kAvx512Bf16),
            supported(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16"));
#else
  EXPECT_EQ(supported_isas(), std::vector<Isa>{Isa::kPortable});
#endif
}

TEST(Isa, EachTableIsTheOneOfItsName) {
  for (const Isa isa : supported_isas()) EXPECT_STREQ(kernels(isa).name, to_string(isa));
}

}  // namespace
}  // namespace moetune::cpu
