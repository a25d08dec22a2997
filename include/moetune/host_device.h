// The processor that this program runs on, as a Device: plain memory, the steady clock, calls one
// after the other on the calling thread. What the calls do with threads is their own affair.
#pragma once

#include <memory>

#include "moetune/measuring.h"
#include "moetune/plan.h"

namespace moetune {

/// kind "cpu", the processor's name, and {"machine", "cores"} as identity. A backend that knows
/// more (instruction sets, memory) describes the processor itself.
DeviceProperties host_properties();

/// A device of those properties.
std::unique_ptr<Device> make_host_device(DeviceProperties properties = host_properties());

}  // namespace moetune
