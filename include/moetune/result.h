// Errors as values. Everything that can happen to a correct program comes back as a Result<T>;
// checks and exceptions are for bugs and for what the standard library throws.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace moetune {

enum class ErrorCode {
  kInvalidArgument,  ///< The caller asked for something that makes no sense.
  kNotFound,         ///< A file, model, tensor or parameter that was named is not there.
  kUnsupported,      ///< It makes sense, and this build or machine cannot do it.
  kParse,            ///< A file's or message's content is malformed.
  kIo,               ///< The operating system refused to read or write.
  kOutOfMemory,      ///< A limit on memory, given or physical, would be exceeded.
  kCompile,          ///< A kernel did not compile.
  kRun,              ///< A kernel ran and failed.
  kWrongResult,      ///< A kernel ran and its output is not right.
  kMeasurement,      ///< A time that cannot be true.
  kDeadline,         ///< A time limit passed.
  kInterrupted,      ///< The user or the host program asked to stop.
  kInternal,         ///< A bug of moetune that was noticed in time.
};

/// The stable lower-case name of a code ("invalid_argument"), as --json prints it. Valid for ever;
/// never null.
const char* to_string(ErrorCode code);

/// What went wrong and where (`message`), and what to do about it (`hint`, may be empty).
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string hint = {};
};

/// A value or an Error. Reading the side that is not there is a bug (assert).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }
  const Error& error() const& {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    assert(!ok());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit on purpose

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  Error& error() & {
    assert(!ok_);
    return error_;
  }
  const Error& error() const& {
    assert(!ok_);
    return error_;
  }
  Error&& error() && {
    assert(!ok_);
    return std::move(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace moetune
