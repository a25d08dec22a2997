#include "capi/boundary.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace moetune::capi {

namespace {

// Larger than any structure of this interface will ever be.
constexpr size_t kMostBytes = 4096;

struct LastError {
  std::string message;
  std::string hint;
  // Instead, where there was no memory to keep them.
  bool is_lost = false;
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

moetune_status code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return MOETUNE_INVALID_ARGUMENT;
    case ErrorCode::kNotFound: return MOETUNE_NOT_FOUND;
    case ErrorCode::kUnsupported: return MOETUNE_UNSUPPORTED;
    case ErrorCode::kParse: return MOETUNE_PARSE;
    case ErrorCode::kIo: return MOETUNE_IO;
    case ErrorCode::kOutOfMemory: return MOETUNE_OUT_OF_MEMORY;
    case ErrorCode::kCompile: return MOETUNE_COMPILE;
    case ErrorCode::kRun: return MOETUNE_RUN;
    case ErrorCode::kWrongResult: return MOETUNE_WRONG_RESULT;
    case ErrorCode::kMeasurement: return MOETUNE_MEASUREMENT;
    case ErrorCode::kDeadline: return MOETUNE_DEADLINE;
    case ErrorCode::kInterrupted: return MOETUNE_INTERRUPTED;
    case ErrorCode::kInternal: return MOETUNE_INTERNAL;
  }
  return MOETUNE_INTERNAL;
}

}  // namespace

moetune_status fail(const Error& error) noexcept {
  LastError& last = last_error();
  const moetune_status code = code_of(error.code);
  try {
    last.message = error.message.empty() ? moetune_status_name(code) : error.message;
    last.hint = error.hint;
    last.is_lost = false;
  } catch (...) {
    last.is_lost = true;
  }
  return code;
}

Status need(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("{} is NULL", name)};
}

Status check_size(size_t size, size_t first, const char* name) {
  if (size >= first && size <= kMostBytes) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("{}: a struct_size of {} bytes; this library knows {} and more", name,
                           size, first),
               "initialise it: its _init function, or sizeof"};
}

Status check_given(const void* given, size_t size, size_t first, size_t known, const char* name) {
  if (Status checked = check_size(size, first, name); !checked.ok()) return checked;
  const auto* bytes = static_cast<const unsigned char*>(given);
  if (size <= known || std::all_of(bytes + known, bytes + size, [](int b) { return b == 0; }))
    return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("{}: something is set that this version of moetune ({}) does not know",
                           name, moetune_version()),
               "the program was compiled for a newer libmoetune: install that one"};
}

}  // namespace moetune::capi

const char* moetune_last_error(void) {
  const auto& last = moetune::capi::last_error();
  return last.is_lost ? "out of memory" : last.message.c_str();
}

const char* moetune_last_error_hint(void) {
  const auto& last = moetune::capi::last_error();
  return last.is_lost ? "" : last.hint.c_str();
}

const char* moetune_status_name(moetune_status status) {
  if (status == MOETUNE_OK) return "ok";
  if (status < MOETUNE_INVALID_ARGUMENT || status > MOETUNE_INTERNAL) return "unknown";
  // The codes are those of ErrorCode, in the same order, after "ok".
  return moetune::to_string(static_cast<moetune::ErrorCode>(status - MOETUNE_INVALID_ARGUMENT));
}

int32_t moetune_abi_version(void) { return MOETUNE_ABI_VERSION; }

const char* moetune_version(void) { return MOETUNE_VERSION; }
