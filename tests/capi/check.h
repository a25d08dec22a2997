/* CHECK(condition): counts what does not hold, and goes on. */
#ifndef MOETUNE_TESTS_CAPI_CHECK_H_
#define MOETUNE_TESTS_CAPI_CHECK_H_

#include <stdio.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      ++failures;                                                             \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

/* A call that must succeed. */
#define OK(call)                                                             \
  do {                                                                       \
    const moetune_status status_of_call = (call);                            \
    if (status_of_call != MOETUNE_OK) {                                      \
      ++failures;                                                            \
      fprintf(stderr, "%s:%d: %s: %s: %s (%s)\n", __FILE__, __LINE__, #call, \
              moetune_status_name(status_of_call), moetune_last_error(),     \
              moetune_last_error_hint());                                    \
    }                                                                        \
  } while (0)

/* A call that must fail with that code, and a text that has `part` in it. */
#define FAILS(call, code, part)                                                                   \
  do {                                                                                            \
    const moetune_status status_of_call = (call);                                                 \
    if (status_of_call != (code) || strstr(moetune_last_error(), (part)) == NULL) {               \
      ++failures;                                                                                 \
      fprintf(stderr, "%s:%d: %s: %s: \"%s\", not %s: \"...%s...\"\n", __FILE__, __LINE__, #call, \
              moetune_status_name(status_of_call), moetune_last_error(),                          \
              moetune_status_name(code), (part));                                                 \
    }                                                                                             \
  } while (0)

#endif
