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

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::vector<MeasurementRecord>> records_;
};

}  // namespace

std::unique_ptr<MeasurementStore> make_memory_store() { return std::make_unique<MemoryStore>(); }

}  // namespace moetune
