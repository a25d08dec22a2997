// moetune-worker: the helper process in which candidates compile and run
// (docs/worker-protocol.md). Not for people: it speaks on descriptor 3.
#include "engine/isolation.h"
#include "worker/server.h"

int main(int argc, char** argv) {
  return moetune::worker::run_program(argc, argv, moetune::make_worker_registry());
}
