// The steps of load_driver(), for tests.
#pragma once

#include "cuda/driver.h"
#include "cuda/shared_library.h"
#include "moetune/result.h"

namespace moetune::cuda {

/// The functions of an opened driver library. kUnsupported where it is older than
/// kOldestDriverVersion.
Result<Driver> bind_driver(const SharedLibrary& library);

/// Initialises the driver. kUnsupported where it cannot start, is a stub, or finds no GPU.
Status start_driver(const Driver& driver);

}  // namespace moetune::cuda
