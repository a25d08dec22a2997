/* Asks an installed libmoetune.so what a model's layer looks like. */
#include <stdio.h>

#include "moetune/moetune.h"

int main(void) {
  moetune_spec spec;
  if (moetune_abi_version() != MOETUNE_ABI_VERSION) return 1;
  if (moetune_spec_init(&spec, sizeof spec) != MOETUNE_OK ||
      moetune_spec_from_model("qwen3-30b-a3b", NULL, &spec) != MOETUNE_OK) {
    fprintf(stderr, "%s\n%s\n", moetune_last_error(), moetune_last_error_hint());
    return 1;
  }
  printf("moetune %s: %d experts of %d rows\n", moetune_version(), (int)spec.experts,
         (int)spec.intermediate);
  return spec.experts == 128 ? 0 : 1;
}
