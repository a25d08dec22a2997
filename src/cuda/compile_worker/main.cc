// moetune-jit: the compiler process that cuda/compile_pool.h starts. Not for people: it speaks on
// descriptor 3.
#include <cstdio>

#include "base/child_process.h"
#include "cuda/compile_worker.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs(
        "moetune-jit is started by moetune to compile GPU kernels; it does nothing by itself\n",
        stderr);
    return 2;
  }
  return moetune::cuda::serve_compile_jobs(moetune::kHelperSocket, argv[1], argv[2]);
}
