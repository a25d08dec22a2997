// What a MOETUNE_PORTABLE build, which holds libstdc++ and libgcc and takes everything else from
// the glibc it meets, would ask of a glibc that many machines do not have. With these definitions
// in their place it runs on glibc 2.34: Ubuntu 22.04, RHEL 9 and whatever is newer.
#ifdef MOETUNE_PORTABLE

#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

// glibc has it since 2.36; Debian 12's libstdc++ seeds std::random_device with it.
extern "C" uint32_t arc4random() {
  uint32_t bits = 0;
  // Requests of up to 256 bytes are never answered in part; the only failure is a kernel older
  // than 3.17.
  if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) std::abort();
  return bits;
}

#if defined(DLFO_EH_SEGMENT_TYPE) && !DLFO_STRUCT_HAS_EH_DBASE && !DLFO_STRUCT_HAS_EH_COUNT

namespace {

struct Search {
  uintptr_t address;
  dl_find_object* result;
};

// For dl_iterate_phdr(): 1, which ends the walk, where the address is in a segment of this object.
int look_into_object(dl_phdr_info* object, size_t, void* data) {
  const Search& search = *static_cast<Search*>(data);
  bool holds_it = false;
  uintptr_t first = UINTPTR_MAX;
  uintptr_t end = 0;
  void* unwind_table = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == DLFO_EH_SEGMENT_TYPE) unwind_table = reinterpret_cast<void*>(begin);
    if (segment.p_type != PT_LOAD) continue;
    holds_it |= search.address >= begin && search.address - begin < segment.p_memsz;
    if (begin < first) first = begin;
    if (begin + segment.p_memsz > end) end = begin + segment.p_memsz;
  }
  if (!holds_it) return 0;
  *search.result = {};
  search.result->dlfo_map_start = reinterpret_cast<void*>(first);
  search.result->dlfo_map_end = reinterpret_cast<void*>(end);
  search.result->dlfo_eh_frame = unwind_table;
  return 1;
}

}  // namespace

// glibc has it since 2.35; libgcc finds the unwind table of what an exception passes through by it.
// Seen by nobody but the program or library that this is linked into.
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(
    void* address, dl_find_object* result) noexcept {
  Search search = {reinterpret_cast<uintptr_t>(address), result};
  const bool found = ::dl_iterate_phdr(&look_into_object, &search) == 1;
  return found && result->dlfo_eh_frame != nullptr ? 0 : -1;
}

#endif

#endif
