// What every function of the C interface does at its edge: errors become a code and a text, no
// exception gets out, and structures of another size than this library's are read as far as both
// sides know them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>

#include "moetune/moetune.h"
#include "moetune/result.h"

namespace moetune::capi {

/// The code, after remembering the text for this thread.
moetune_status fail(const Error& error) noexcept;

/// Runs what returns a Status.
template <typename Function>
moetune_status guarded(Function&& function) noexcept {
  try {
    const Status done = function();
    return done.ok() ? moetune_status{MOETUNE_OK} : fail(done.error());
  } catch (const std::bad_alloc&) {
    return fail({ErrorCode::kOutOfMemory, {}});
  } catch (const std::exception& thrown) {
    try {
      return fail({ErrorCode::kInternal, thrown.what()});
    } catch (...) {
      return fail({ErrorCode::kInternal, {}});
    }
  } catch (...) {
    return fail({ErrorCode::kInternal, {}});
  }
}

/// kInvalidArgument where a pointer is null.
Status need(const void* pointer, const char* name);

/// Sizes of the structures in the first release of this ABI: nobody's is smaller. One that grows
/// gets a specialisation with the number that it had.
template <typename Structure>
inline constexpr size_t kFirstSize = sizeof(Structure);
template <>
inline constexpr size_t kFirstSize<moetune_layer_options> = 64;

/// Whether `size` can be that of a structure which begins at `given` and of which this library
/// knows `known` bytes: kInvalidArgument for one that was never initialised.
Status check_size(size_t size, size_t first, const char* name);
/// The same, and kUnsupported where something that this library does not know is not zero.
Status check_given(const void* given, size_t size, size_t first, size_t known, const char* name);

/// What the caller gave, over the defaults of what the caller's version does not have.
template <typename Structure>
Result<Structure> read_struct(const Structure* given, Structure value, const char* name) {
  if (Status there = need(given, name); !there.ok()) return std::move(there).error();
  Status checked =
      check_given(given, given->struct_size, kFirstSize<Structure>, sizeof value, name);
  if (!checked.ok()) return std::move(checked).error();
  std::memcpy(static_cast<void*>(&value), given, std::min(given->struct_size, sizeof value));
  return value;
}

/// Writes as much of `value` as the caller's version has, zeros into what only that one knows.
template <typename Structure>
Status write_struct(Structure* out, size_t size, Structure value, const char* name) {
  if (Status there = need(out, name); !there.ok()) return there;
  if (Status checked = check_size(size, kFirstSize<Structure>, name); !checked.ok()) return checked;
  value.struct_size = size;
  const size_t known = std::min(size, sizeof value);
  std::memcpy(static_cast<void*>(out), &value, known);
  std::memset(reinterpret_cast<std::byte*>(out) + known, 0, size - known);
  return {};
}
template <typename Structure>
Status write_struct(Structure* out, const Structure& value, const char* name) {
  if (Status there = need(out, name); !there.ok()) return there;
  return write_struct(out, out->struct_size, value, name);
}

}  // namespace moetune::capi
