#include "cuda/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace moetune::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kRegisterUnit = 256;  // Registers are given to a warp in multiples of this.
constexpr int kRegistersPerThreadUnit = kRegisterUnit / kWarp;
constexpr int kSharedUnit = 128;  // Shared memory is given to a block in multiples of this.
constexpr int kPartitions = 4;    // A warp's registers come from one of four equal files.

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

int warps_of(int threads) { return (threads + kWarp - 1) / kWarp; }

// "102400" as "102,400": these texts are read by people who compare them with a data sheet.
std::string grouped(int value) {
  std::string text = std::to_string(value);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

int blocks_by_registers(const ArchitectureLimits& limits, int warps, int registers) {
  if (registers == 0) return limits.blocks_per_multiprocessor;
  const int per_warp = round_up(registers * kWarp, kRegisterUnit);
  const int warps_per_partition = limits.registers_per_multiprocessor / kPartitions / per_warp;
  return warps_per_partition * kPartitions / warps;
}

int blocks_by_shared(const ArchitectureLimits& limits, int shared_bytes) {
  const int per_block = round_up(shared_bytes + limits.shared_reserved, kSharedUnit);
  return limits.shared_per_multiprocessor / per_block;
}

// Why not even one block can be launched; empty where one can.
std::string why_impossible(const ArchitectureLimits& limits, const KernelNeeds& needs) {
  if (needs.threads < 1 || needs.threads > limits.threads_per_block) {
    return fmt::format("{} threads per block; sm_{} has 1 to {}", grouped(needs.threads), limits.sm,
                       grouped(limits.threads_per_block));
  }
  if (needs.shared_bytes > limits.shared_per_block) {
    return fmt::format("needs {} bytes of shared memory per block; sm_{} has {}",
                       grouped(needs.shared_bytes), limits.sm, grouped(limits.shared_per_block));
  }
  if (needs.registers > limits.registers_per_thread) {
    return fmt::format("needs {} registers per thread; sm_{} has {}", needs.registers, limits.sm,
                       limits.registers_per_thread);
  }
  return {};
}

std::string amount_needed(const KernelNeeds& needs, std::string_view limited_by) {
  if (limited_by == "shared memory") {
    return fmt::format("{} bytes of shared memory per block", grouped(needs.shared_bytes));
  }
  if (limited_by == "registers") {
    return fmt::format("{} registers in each of {} threads", needs.registers, needs.threads);
  }
  return fmt::format("{} threads per block", needs.threads);
}

}  // namespace

std::string Architecture::text() const {
  return suffix ? fmt::format("sm_{}{}", sm(), suffix) : fmt::format("sm_{}", sm());
}

Result<Architecture> Architecture::parse(std::string_view text) {
  const Error bad{ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no CUDA architecture", text),
                  "write it as sm_90, sm_120a, 90 or 9.0"};
  std::string_view rest = text.starts_with("sm_") ? text.substr(3) : text;
  Architecture arch;
  if (!rest.empty() && (rest.back() == 'a' || rest.back() == 'f')) {
    arch.suffix = rest.back();
    rest.remove_suffix(1);
  }
  std::string digits(rest);
  if (const size_t dot = digits.find('.'); dot != std::string::npos && dot + 2 == digits.size())
    digits.erase(dot, 1);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 10 || number > 999)
    return bad;
  arch.major = number / 10;
  arch.minor = number % 10;
  return arch;
}

const std::vector<ArchitectureLimits>& known_limits() {
  static const std::vector<ArchitectureLimits> limits = [] {
    const auto make = [](int sm, int shared_kib, int warps, int blocks) {
      ArchitectureLimits one;
      one.sm = sm;
      one.shared_per_multiprocessor = shared_kib * 1024;
      // All of it but what is kept for the one block that then fits.
      one.shared_per_block = one.shared_per_multiprocessor - one.shared_reserved;
      one.warps_per_multiprocessor = warps;
      one.blocks_per_multiprocessor = blocks;
      return one;
    };
    return std::vector<ArchitectureLimits>{
        make(80, 164, 64, 32),  make(86, 100, 48, 16),  make(87, 164, 48, 16),
        make(89, 100, 48, 24),  make(90, 228, 64, 32),  make(100, 228, 64, 32),
        make(103, 228, 64, 32), make(120, 100, 48, 24), make(121, 100, 48, 24)};
  }();
  return limits;
}

const ArchitectureLimits* find_limits(int sm) {
  const auto& all = known_limits();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.sm == sm; });
  return found == all.end() ? nullptr : &*found;
}

Fit plan_kernel(const ArchitectureLimits& limits, const KernelNeeds& needs) {
  Fit fit;
  fit.reason = why_impossible(limits, needs);
  if (!fit.reason.empty()) return fit;

  const int warps = warps_of(needs.threads);
  const struct {
    const char* what;
    int blocks;
  } bounds[] = {{"shared memory", blocks_by_shared(limits, needs.shared_bytes)},
                {"registers", blocks_by_registers(limits, warps, needs.registers)},
                {"warps", limits.warps_per_multiprocessor / warps},
                {"blocks", limits.blocks_per_multiprocessor}};
  const auto& least =
      *std::min_element(std::begin(bounds), std::end(bounds),
                        [](const auto& a, const auto& b) { return a.blocks < b.blocks; });
  fit.blocks_per_multiprocessor = least.blocks;
  fit.limited_by = least.what;
  if (least.blocks < std::max(1, needs.min_blocks)) {
    fit.reason =
        fmt::format("{} allow {} block{} per multiprocessor of sm_{}; {} wanted",
                    amount_needed(needs, least.what), least.blocks, least.blocks == 1 ? "" : "s",
                    limits.sm, std::max(1, needs.min_blocks));
  }
  return fit;
}

int register_budget(const ArchitectureLimits& limits, int threads, int blocks) {
  const int warps = std::max(1, warps_of(threads) * blocks);
  const int warps_per_partition = (warps + kPartitions - 1) / kPartitions;
  const int per_warp = limits.registers_per_multiprocessor / kPartitions / warps_per_partition;
  const int per_thread = per_warp / kWarp / kRegistersPerThreadUnit * kRegistersPerThreadUnit;
  return std::min(per_thread, limits.registers_per_thread);
}

}  // namespace moetune::cuda
