// Passing errors up: MOETUNE_RETURN_IF_ERROR(status_expression) and MOETUNE_ASSIGN_OR_RETURN(auto
// x, result_expression).
#pragma once

#include "moetune/result.h"

#define MOETUNE_CONCAT_INNER(a, b) a##b
#define MOETUNE_CONCAT(a, b) MOETUNE_CONCAT_INNER(a, b)

#define MOETUNE_RETURN_IF_ERROR(expression)                       \
  do {                                                            \
    if (auto moetune_status = (expression); !moetune_status.ok()) \
      return std::move(moetune_status).error();                   \
  } while (false)

#define MOETUNE_ASSIGN_OR_RETURN_NAMED(temporary, declaration, expression) \
  auto temporary = (expression);                                           \
  if (!temporary.ok()) return std::move(temporary).error();                \
  declaration = std::move(temporary).value()

/// Evaluates a Result<T>: its value initialises `declaration`, its error is returned from the
/// calling function.
#define MOETUNE_ASSIGN_OR_RETURN(declaration, expression) \
  MOETUNE_ASSIGN_OR_RETURN_NAMED(MOETUNE_CONCAT(moetune_result_, __LINE__), declaration, expression)
