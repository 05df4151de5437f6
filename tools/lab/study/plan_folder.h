// The folder of a study that is only planned: what the plan has written there goes again.
#pragma once

#include <filesystem>
#include <string>

namespace drivetrain::study {

// While the object lives, a plan may write base.json into `folder`. A folder where a study has begun stays as it is.
class PlanFolder {
 public:
  explicit PlanFolder(const std::string& folder) : folder_(folder) {
    std::error_code unknown;
    was_there_ = std::filesystem::exists(folder_, unknown);
    was_begun_ = std::filesystem::exists(folder_ + "/ledger.jsonl", unknown);
  }
  ~PlanFolder() {
    std::error_code ignored;
    if (!was_begun_) std::filesystem::remove(folder_ + "/base.json", ignored);
    if (!was_there_) std::filesystem::remove(folder_, ignored);
  }
  PlanFolder(const PlanFolder&) = delete;
  PlanFolder& operator=(const PlanFolder&) = delete;

 private:
  const std::string folder_;
  bool was_there_ = false, was_begun_ = false;
};

}  // namespace drivetrain::study
