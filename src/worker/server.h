// The helper's side of the worker protocol (docs/worker-protocol.md): answers requests by an
// in-process executor per session.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/json.h"
#include "worker/given_arguments.h"
#include "worker/line_channel.h"
#include "worker/messages.h"
#include "worker/registry.h"

namespace moetune::worker {

/// Serves one parent until it hangs up. Not thread-safe.
class Server {
 public:
  /// `registry` must outlive it.
  Server(LineChannel& channel, const Registry& registry);
  ~Server();

  /// Says hello, then answers until the other end closes. kIo, kParse where the conversation broke.
  Status run();

 private:
  struct Session;
  /// What goes back beside "id".
  struct Answer {
    Json fields = Json::object();
    std::vector<Descriptor> files;
  };

  Status answer(const Json& request);
  Result<Answer> perform(const std::string& what, JsonReader& request);
  Result<Answer> open(JsonReader& request);
  Result<Answer> load(Session& session, JsonReader& request);
  Result<Answer> select(Session& session, JsonReader& request);
  Result<Answer> prefetch(Session& session, JsonReader& request);
  Result<Answer> check(Session& session, JsonReader& request);
  Result<Answer> ceilings(Session& session, JsonReader& request);
  Result<Answer> measure(Session& session, JsonReader& request);
  Result<std::vector<GivenSample>> given_samples(const Session& session, JsonReader& request);

  bool devices_work();

  LineChannel& channel_;
  const Registry& registry_;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  int64_t request_ = 0;            // At work, ...
  std::vector<Descriptor> files_;  // ... and what came with it.
};

/// The whole of a helper program: main() of one calls this with its arguments and its registry.
/// Sets limits, ends with the parent, serves on descriptor 3. Returns the exit status.
int run_program(int argc, char** argv, const Registry& registry);

}  // namespace moetune::worker
