// What a process's exit code says.
#pragma once

#include "moetune/result.h"

namespace moetune::cli {

enum class Exit : int {
  kDone = 0,
  kFailed = 1,         ///< Something went wrong, or a check found something wrong.
  kUsage = 2,          ///< The command line makes no sense.
  kInterrupted = 130,  ///< Stopped by the user; the best so far is saved.
};

/// kInvalidArgument is the user's own words, kInterrupted their wish; everything else is a failure.
inline Exit exit_for(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument: return Exit::kUsage;
    case ErrorCode::kInterrupted: return Exit::kInterrupted;
    default: return Exit::kFailed;
  }
}

}  // namespace moetune::cli
