// <cstddef> for programs compiled at run time; the compiler itself knows ::size_t.
#pragma once

namespace std {
using ::size_t;
using ptrdiff_t = long long;
}  // namespace std
