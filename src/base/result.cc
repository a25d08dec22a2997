#include "moetune/result.h"

namespace moetune {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kParse: return "parse";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kOutOfMemory: return "out_of_memory";
    case ErrorCode::kCompile: return "compile";
    case ErrorCode::kRun: return "run";
    case ErrorCode::kWrongResult: return "wrong_result";
    case ErrorCode::kMeasurement: return "measurement";
    case ErrorCode::kDeadline: return "deadline";
    case ErrorCode::kInterrupted: return "interrupted";
    case ErrorCode::kInternal: return "internal";
  }
  return "internal";
}

}  // namespace moetune
