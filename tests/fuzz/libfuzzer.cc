// What libFuzzer calls, in a program of one target.
#include <cstddef>
#include <cstdint>

#include "fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moetune::fuzz::targets().front().run({reinterpret_cast<const char*>(data), size});
  return 0;
}
