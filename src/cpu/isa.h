// Which instruction sets this machine and its operating system have, and the kernels compiled for
// each.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "cpu/kernels/kernel_table.h"
#include "moetune/result.h"

namespace moetune::cpu {

/// Kernel sets, each faster than the ones before it where a machine has it.
enum class Isa : uint8_t {
  kPortable,    ///< Whatever the build's baseline has.
  kAvx2,        ///< AVX2, FMA, F16C
  kAvx512,      ///< AVX-512 F, BW, VL
  kAvx512Bf16,  ///< The same and AVX-512 BF16: bf16 dot products.
};

/// "portable", "avx2", "avx512", "avx512_bf16".
const char* to_string(Isa isa);
std::optional<Isa> parse_isa(std::string_view text);

/// Whether this build has kernels for `isa`, the processor has its instructions and the system
/// saves its registers.
bool supported(Isa isa);

/// All that are, kPortable first. Never empty.
std::vector<Isa> supported_isas();

/// The set to use: the one that the environment variable MOETUNE_CPU_ISA names, or the best
/// supported one where it is unset or empty. kInvalidArgument for an unknown name, kUnsupported for
/// a set that this machine cannot run.
Result<Isa> choose_isa();

/// The kernels of a supported set.
const KernelTable& kernels(Isa isa);

}  // namespace moetune::cpu
