#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "moetune/measuring.h"

namespace moetune {
namespace {

class MemoryStore final : public MeasurementStore {
 public:
  Status put(const MeasurementRecord& record) override {
    const std::lock_guard lock(mutex_);
    records_[{record.problem, record.device}].push_back(record);
    return {};
  }

  Result<std::vector<MeasurementRecord>> find(const std::string& problem,
                                              const std::string& device) override {
    const std::lock_guard lock(mutex_);
    const auto found = records_.find({problem, device});
    return found == records_.end() ? std::vector<MeasurementRecord>{} : found->second;
  }

  Status put_run(const TuneRun& run) override {
    const std::lock_guard lock(mutex_);
    std::vector<TuneRun>& runs = runs_[{run.problem, run.device}];
    std::erase_if(runs, [&run](const TuneRun& earlier) { return earlier.id == run.id; });
    runs.push_back(run);
    std::stable_partition(runs.begin(), runs.end(), [](const TuneRun& r) { return !r.plan; });
    return {};
  }

  Result<std::vector<TuneRun>> find_runs(const std::string& problem,
                                         const std::string& device) override {
    const std::lock_guard lock(mutex_);
    const auto found = runs_.find({problem, device});
    return found == runs_.end() ? std::vector<TuneRun>{} : found->second;
  }

 private:
  using Place = std::pair<std::string, std::string>;  // Problem and device.

  std::mutex mutex_;
  std::map<Place, std::vector<MeasurementRecord>> records_;
  std::map<Place, std::vector<TuneRun>> runs_;
};

}  // namespace

std::unique_ptr<MeasurementStore> make_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace moetune
