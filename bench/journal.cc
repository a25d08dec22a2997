// What the journal costs: a put, finding one problem, and opening a file of many measurements.
//
//   bench_journal FILE [--measurements N] [--problems N]
//
// Makes FILE, which must not be there, fills it, and prints one line per figure. The file stays, so
// that other programs can be tried on it.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "journal/database.h"
#include "journal/store.h"

namespace moetune::journal {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string file;
  int64_t measurements = 1000000;
  int64_t problems = 100;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// As long as real keys and candidates are.
MeasurementRecord record_of(int64_t number, int64_t problems) {
  const int64_t problem = number % problems;
  const int64_t rest = number / problems;
  MeasurementRecord record;
  record.problem = fmt::format(
      "fused_moe activation=swiglu ep=1 experts=128 global_experts=128 hidden={} intermediate=768 "
      "output=bf16 renormalize=1 router=softmax scoring=softmax top_k=8 tp=1 weights=nvfp4",
      1024 + problem);
  record.device = "cpu cores=2 isa=avx2 l3_bytes=33554432 memory_bytes=25769803776";
  const Tactic tactic({{"rows", rest % 7},
                       {"token_tile", rest % 11},
                       {"feed", std::string("staged")},
                       {"order", std::string("experts")},
                       {"point", rest % 2500}});
  record.candidate = {"cpu.packed", 3, "separate", {{"gemm1", tactic}, {"gemm2", tactic}}};
  record.layout = "panels16";
  record.what = {int64_t{1} << (rest / 2500 % 10), "uniform", 0};
  record.stage = static_cast<int>(rest / 25000);
  record.time = {100, 99, 99.5, 101, 10};
  record.state = {3400, 0, 60, 0};
  record.phase = "race";
  record.unix_ms = 1700000000000 + number;
  return record;
}

void fail(const Error& error) {
  fmt::print(stderr, "{}\n", error.message);
  std::exit(1);
}

void fill(const Options& options) {
  auto database = Database::open(options.file, {.create = true});
  if (!database.ok()) fail(database.error());
  constexpr int64_t kTogether = 10000;
  const auto start = Clock::now();
  for (int64_t first = 0; first < options.measurements; first += kTogether) {
    std::vector<MeasurementRecord> records;
    for (int64_t i = first; i < std::min(first + kTogether, options.measurements); ++i)
      records.push_back(record_of(i, options.problems));
    if (Status status = (*database)->put(records, {"bench", {}}); !status.ok())
      fail(status.error());
  }
  fmt::print("filled with {} measurements in {:.1f} s\n", options.measurements,
             seconds_since(start));
}

// The median of some goes: the first one reads from the disk, the others from memory.
template <typename Go>
void time_of(const char* what, int goes, const Go& go) {
  std::vector<double> times;
  for (int i = 0; i < goes; ++i) {
    const auto start = Clock::now();
    go(i);
    times.push_back(1e3 * seconds_since(start));
  }
  fmt::print("{}: first {:.3f} ms, median {:.3f} ms\n", what, times.front(), median(times));
}

constexpr int kPuts = 2000;

// In a row, until all is written, checkpoints included. Each candidate is put three times, as its
// time in a race grows.
void time_puts(const char* what, const Options& options, int64_t first,
               const JournalStore::Options& how) {
  std::vector<MeasurementRecord> records;
  for (int i = 0; i < kPuts; ++i) records.push_back(record_of(first + i / 3, options.problems));
  auto store = std::make_unique<JournalStore>(how);
  const auto start = Clock::now();
  for (const MeasurementRecord& record : records) {
    if (Status status = store->put(record); !status.ok()) fail(status.error());
  }
  store.reset();
  fmt::print("{}: {:.1f} us each, over {} in a row\n", what, 1e6 * seconds_since(start) / kPuts,
             kPuts);
}

void measure(const Options& options) {
  time_of("open", 5, [&](int) { JournalStore({.path = options.file}); });
  JournalStore store({.path = options.file});
  const MeasurementRecord usual = record_of(0, options.problems);
  time_of("find one problem", 5, [&](int) {
    const auto found = store.find(usual.problem, usual.device);
    if (!found.ok()) fail(found.error());
  });
  time_of("find an unknown problem", 5, [&](int) { (void)store.find("unknown", usual.device); });

  time_puts("put", options, options.measurements, {.path = options.file});
  // As `tune` puts them.
  time_puts("put, gathered", options, options.measurements + kPuts,
            {.path = options.file, .gather = std::chrono::milliseconds(250)});
  fmt::print("file: {:.1f} MB\n",
             1e-6 * static_cast<double>(std::filesystem::file_size(options.file)));
}

int main_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--measurements") == 0 && has_value) {
      options.measurements = std::atoll(argv[++i]);
    } else if (std::strcmp(argv[i], "--problems") == 0 && has_value) {
      options.problems = std::atoll(argv[++i]);
    } else {
      options.file = argv[i];
    }
  }
  if (options.file.empty() || options.problems < 1 || std::filesystem::exists(options.file)) {
    fmt::print(stderr, "usage: bench_journal NEW-FILE [--measurements N] [--problems N]\n");
    return 2;
  }
  fill(options);
  measure(options);
  return 0;
}

}  // namespace
}  // namespace moetune::journal

int main(int argc, char** argv) { return moetune::journal::main_of(argc, argv); }
