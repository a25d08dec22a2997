// For programs of the preset `portable` only, which hold libstdc++ and take everything else from
// the glibc they meet.
//
// Debian 12's libstdc++ seeds std::random_device with arc4random(), which glibc has since 2.36.
// With this definition in its place the programs run on 2.35 too: Ubuntu 22.04, on which many GPU
// machines still are.
#ifdef MOETUNE_PORTABLE

#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() {
  uint32_t bits = 0;
  // Requests of up to 256 bytes are never answered in part; the only failure is a kernel older
  // than 3.17.
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) std::abort();
  return bits;
}

#endif
