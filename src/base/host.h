// The machine this process runs on, as far as the tuner's own host device needs it. src/cpu knows
// far more about processors.
#pragma once

#include <cstddef>
#include <string>

namespace moetune {

/// Bytes that can still be allocated without swapping: the least of what the system has and what
/// the process's control group allows. 0: unknown.
size_t host_available_memory_bytes();

/// Bytes of the largest cache of processor 0; 0: unknown.
size_t host_last_level_cache_bytes();

/// The processor's marketing name; empty: unknown.
std::string host_processor_name();

}  // namespace moetune
