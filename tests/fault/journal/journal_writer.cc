// A process with a journal, for journal_test.py to kill, stop and starve.
//
//   journal_writer FILE write FIRST COUNT [PAUSE_MS]     puts records FIRST, FIRST + 1, ...
//   journal_writer FILE gather FIRST COUNT [PAUSE_MS]    the same as `tune` does it, then stalls
//   journal_writer FILE read                             says what is there
//   journal_writer FILE hold                             begins a transaction and waits
//
// Each line on stdout is written at once: "warning TEXT", "put N FROM TO" when record N was
// acknowledged by a call that went on from FROM to TO (microseconds of the steady clock), "kept N
// TEXT" when it was not, "found N", "held", "end".
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "journal/store.h"

namespace moetune::journal {
namespace {

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::exit(3);
}

MeasurementRecord record_of(int64_t number) {
  MeasurementRecord record;
  record.problem = "fused_moe hidden=64";
  record.device = "cpu isa=avx2";
  record.candidate = {"cpu.packed", 1, "single", {{"main", Tactic({{"number", number}})}}};
  record.layout = "plain";
  record.what = {1 + number % 7, "uniform", 0};
  record.time = {100, 99, 99.5, 101, 3};
  record.phase = "race";
  record.unix_ms = 1700000000000 + number;
  return record;
}

int64_t now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

void write(JournalStore& store, int64_t first, int64_t count, std::chrono::milliseconds pause) {
  for (int64_t number = first; number < first + count; ++number) {
    const int64_t from = now_us();
    const Status status = store.put(record_of(number));
    say(status.ok() ? fmt::format("put {} {} {}", number, from, now_us())
                    : fmt::format("kept {} {}", number, status.error().message));
    std::this_thread::sleep_for(pause);
  }
}

void read(JournalStore& store) {
  const MeasurementRecord usual = record_of(0);
  const auto found = store.find(usual.problem, usual.device);
  say(found.ok() ? fmt::format("found {}", found->size())
                 : fmt::format("warning {}", found.error().message));
}

int hold(const std::string& path) {
  auto database = Database::open(path, {.create = true});
  if (!database.ok()) return 1;
  const auto transaction = Transaction::begin((*database)->connection());
  if (!transaction.ok()) return 1;
  say("held");
  ::pause();
  return 0;
}

int main_of(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string path = argv[1];
  const std::string_view what = argv[2];
  if (what == "hold") return hold(path);
  {
    const bool gathers = what == "gather";
    JournalStore store({.path = path,
                        .patience = std::chrono::milliseconds(1000),
                        .gather = std::chrono::milliseconds(gathers ? 250 : 0)});
    for (const std::string& warning : store.warnings()) say("warning " + warning);
    if ((what == "write" || gathers) && argc >= 5) {
      const std::chrono::milliseconds pause(argc > 5 ? std::atoll(argv[5]) : 0);
      write(store, std::atoll(argv[3]), std::atoll(argv[4]), pause);
    }
    if (gathers) ::pause();  // In a kernel that hangs, say.
    read(store);
  }
  say("end");
  return 0;
}

}  // namespace
}  // namespace moetune::journal

int main(int argc, char** argv) { return moetune::journal::main_of(argc, argv); }
