#include "cpu/isa.h"

#include <fmt/format.h>

#include <cassert>
#include <string>

#include "base/environment.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace moetune::cpu {
namespace {

constexpr Isa kAll[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

#if defined(__x86_64__)

struct Features {
  bool avx2 = false;
  bool avx512 = false;
  bool avx512_bf16 = false;
};

// The register states that the operating system saves and restores (extended control register 0).
uint64_t saved_states() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool has(uint32_t word, std::initializer_list<int> bits) {
  for (const int bit : bits)
    if ((word >> bit & 1u) == 0) return false;
  return true;
}

// Bits as in Intel's Software Developer's Manual, volume 2A, CPUID.
Features detect() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  Features found;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return found;
  const bool avx_fma_f16c = has(ecx, {12, 27, 28, 29});
  if (!avx_fma_f16c) return found;
  const uint64_t states = saved_states();
  uint32_t subleaves = 0;
  if (!__get_cpuid_count(7, 0, &subleaves, &ebx, &ecx, &edx)) return found;
  constexpr uint64_t kYmm = 0x6;
  constexpr uint64_t kZmm = 0xE6;
  found.avx2 = (states & kYmm) == kYmm && has(ebx, {5});
  found.avx512 = found.avx2 && (states & kZmm) == kZmm && has(ebx, {16, 30, 31});
  if (found.avx512 && subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
    found.avx512_bf16 = has(eax, {5});
  return found;
}

const Features& features() {
  static const Features found = detect();
  return found;
}

#endif

std::string names(const std::vector<Isa>& isas) {
  std::string text;
  for (const Isa isa : isas) text += fmt::format("{}{}", text.empty() ? "" : ", ", to_string(isa));
  return text;
}

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
  }
  return "unknown";
}

std::optional<Isa> parse_isa(std::string_view text) {
  for (const Isa isa : kAll)
    if (text == to_string(isa)) return isa;
  return std::nullopt;
}

bool supported(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return true;
#if defined(__x86_64__)
    case Isa::kAvx2: return features().avx2;
    case Isa::kAvx512: return features().avx512;
    case Isa::kAvx512Bf16: return features().avx512_bf16;
#else
    default: return false;
#endif
  }
  return false;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : kAll)
    if (supported(isa)) isas.push_back(isa);
  return isas;
}

Result<Isa> choose_isa() {
  const std::vector<Isa> available = supported_isas();
  const std::optional<std::string> wanted = environment(Variable::kCpuIsa);
  if (!wanted) return available.back();
  const std::optional<Isa> isa = parse_isa(*wanted);
  if (!isa)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("MOETUNE_CPU_ISA names no instruction set: '{}'", *wanted),
                 fmt::format("This machine has: {}.", names(available))};
  if (!supported(*isa))
    return Error{ErrorCode::kUnsupported,
                 fmt::format("MOETUNE_CPU_ISA: this machine cannot run '{}'", *wanted),
                 fmt::format("It has: {}.", names(available))};
  return *isa;
}

const KernelTable& kernels(Isa isa) {
  assert(supported(isa));
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx2: return kAvx2Kernels;
    case Isa::kAvx512: return kAvx512Kernels;
    case Isa::kAvx512Bf16: return kAvx512Bf16Kernels;
    case Isa::kPortable: break;
  }
#endif
  return kPortableKernels;
}

}  // namespace moetune::cpu
