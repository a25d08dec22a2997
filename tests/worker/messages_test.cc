#include "worker/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tuner/configuration.h"
#include "worker/output_tail.h"

namespace moetune::worker {
namespace {

// As it is after the way over a socket.
Json carried(const Json& json) { return *parse_json(print_json_line(json), "carried"); }

TEST(Messages, CandidatesKeepEveryParameterInItsOrder) {
  const Candidate candidate{
      "r", 3, "two", {{"b", Tactic({{"z", 1}, {"a", "64"}, {"m", -5}})}, {"a", {}}}};
  const Json json = carried(candidate_to_json(candidate));
  JsonReader reader(json, "");
  Candidate read;
  read_candidate(reader, read);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(read, candidate);
  EXPECT_EQ(read.text(), candidate.text());
}

TEST(Messages, CasesKeepAllBitsOfASeed) {
  const Case what{17, "zipf:1.2", std::numeric_limits<uint64_t>::max()};
  const Json json = carried(Json{{"case", case_to_json(what)}});
  JsonReader reader(json, "");
  EXPECT_EQ(read_case(reader), what);
  EXPECT_TRUE(reader.ok());
}

TEST(Messages, ProblemsLayoutsAndErrorsAreKept) {
  const Problem problem{"op", {{"b", "2"}, {"a", "x y"}}};
  const std::vector<WeightLayout> layouts{{"r", "panels"}, {"s", ""}};
  const Json json = carried(Json{{"problem", problem_to_json(problem)},
                                 {"layouts", layouts_to_json(layouts)},
                                 {"scale", scale_name(Scale::kSubset)}});
  JsonReader reader(json, "");
  EXPECT_EQ(read_problem(reader), problem);
  EXPECT_EQ(read_layouts(reader), layouts);
  EXPECT_EQ(read_scale(reader), Scale::kSubset);
  EXPECT_TRUE(reader.ok());
  for (const ErrorCode code :
       {ErrorCode::kOutOfMemory, ErrorCode::kCompile, ErrorCode::kInternal}) {
    const Json error = carried(error_to_json({code, "what", "do"}));
    JsonReader fields(error, "");
    const Error read = read_error(fields);
    EXPECT_EQ(read.code, code);
    EXPECT_EQ(read.message, "what");
    EXPECT_EQ(read.hint, "do");
  }
}

TEST(Messages, CeilingsAreKeptAndMustBeNumbersOfAMachine) {
  const Ceilings ceilings{4.1e12, size_t{256} << 20, 7.6e14, "read of 256 MiB", "cuBLASLt"};
  const Json json = carried(ceilings_to_json(ceilings));
  JsonReader reader(json, "");
  const Ceilings read = read_ceilings(reader);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(read.read_bytes, ceilings.read_bytes);
  EXPECT_EQ(read.read_bytes_per_s, ceilings.read_bytes_per_s);
  EXPECT_EQ(read.operations_per_s, ceilings.operations_per_s);
  EXPECT_EQ(read.read_name, ceilings.read_name);
  EXPECT_EQ(read.operations_name, ceilings.operations_name);
  for (const char* field : {"read_bytes", "read_bytes_per_s", "operations_per_s"}) {
    Json bad = json;
    bad[field] = -1;
    JsonReader fields(bad, "");
    read_ceilings(fields);
    EXPECT_FALSE(fields.ok()) << field;
  }
}

TEST(Messages, SamplesKeepTimesThatAreNoNumbers) {
  constexpr uint64_t kReasons = (uint64_t{1} << 63) + 4;
  for (const double us : {1.5, 0.0, -1.0, std::nan("")}) {
    const Json json = carried(
        sample_to_json({us, {.clock_mhz = 1800, .throttle_reasons = kReasons, .power_w = 0.5}}));
    JsonReader reader(json, "");
    const Sample read = read_sample(reader);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_TRUE(read.us == us || (std::isnan(read.us) && std::isnan(us)));
    EXPECT_EQ(read.state.clock_mhz, 1800);
    EXPECT_EQ(read.state.throttle_reasons, kReasons);
    EXPECT_EQ(read.state.power_w, 0.5);
  }
}

TEST(Messages, TensorsTravelWithTheirData) {
  std::vector<float> x{1, 2, 3};
  std::vector<uint16_t> y{7};
  const Tensors tensors{{"y", DataType::kBf16, {1}, y.data()},
                        {"x", DataType::kF32, {3}, x.data()}};
  const auto file = file_of(tensors);
  ASSERT_TRUE(file.ok());
  const Json json = carried(Json{{"outputs", tensors_to_json(tensors)}});
  JsonReader reader(json, "");
  Tensors read = read_tensors(reader, "outputs");
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  const auto storage = fetch_tensors(read, *file);
  ASSERT_TRUE(storage.ok()) << storage.error().message;
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].as<uint16_t>()[0], 7);
  EXPECT_EQ(read[1].as<float>()[2], 3);
  EXPECT_EQ(read[1].shape, tensors[1].shape);
}

TEST(Messages, TensorsOfImpossibleSizesAreRefused) {
  for (const char* text :
       {R"({"o": [{"name": "a", "type": "f33", "shape": [1]}]})",
        R"({"o": [{"name": "a", "type": "f32"}]})",
        R"({"o": [{"name": "a", "type": "f32", "shape": [1.5]}]})",
        R"({"o": [{"name": "a", "type": "f32", "shape": [-1]}]})",
        R"({"o": [{"name": "a", "type": "f32", "shape": [4294967296, 4294967296]}]})",
        R"({"o": [{"name": "a", "type": "u8", "shape": [1,1,1,1,1,1,1,1,1]}]})", R"({"o": 1})",
        R"({})"}) {
    const Json json = *parse_json(text, "test");
    JsonReader reader(json, "");
    read_tensors(reader, "o");
    EXPECT_FALSE(reader.ok()) << text;
  }
}

TEST(OutputTail, KeepsTheEndHoweverItComes) {
  OutputTail tail(4);
  EXPECT_EQ(tail.text(), "");
  tail.add("ab");
  tail.add("cd");
  EXPECT_EQ(tail.text(), "abcd");
  for (const char* c : {"e", "f", "g", "h", "i"}) tail.add(c);
  EXPECT_EQ(tail.text(), "fghi");
  tail.add("0123456789");
  EXPECT_EQ(tail.text(), "6789");
  tail.clear();
  EXPECT_EQ(tail.text(), "");
}

TEST(OutputTail, IsQuotedAsOneCleanLine) {
  OutputTail tail(100);
  tail.add("first\n\n\tse\x1b[1mcond\r\n");
  EXPECT_EQ(tail.quote(100), "first se [1mcond");
  EXPECT_EQ(tail.quote(4), "...cond");
}

}  // namespace
}  // namespace moetune::worker
