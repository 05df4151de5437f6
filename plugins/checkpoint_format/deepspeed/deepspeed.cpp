// Checkpoint folders of DeepSpeed: `global_step40/` and what stands beside it.
#include <drivetrain/checkpoint_format.h>
#include <drivetrain/error.h>
#include <drivetrain/services.h>

#include "open_tag.h"

namespace drivetrain::deepspeed {

class DeepSpeed final : public CheckpointFormat {
 public:
  DeepSpeed(const NoOptions&, const Services&) {}

  std::string recognizes(const std::string& folder) const override {
    TagFiles files = list_files(folder);
    std::string tag;
    if (!files.any()) {
      const std::vector<std::string> tags = tags_in(folder);
      if (tags.empty()) return {};
      files = list_files(folder + "/" + tags.back());
      tag = ", " + tags.back();
    }
    const char* stage = files.stage3 ? "ZeRO stage 3" : files.optimizer.empty() ? "without ZeRO" : "ZeRO stage 1 or 2";
    return concat("DeepSpeed, ", stage, ", ", std::max<size_t>(files.optimizer.size(), 1), " ranks", tag);
  }

  std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string& tag) const override {
    std::vector<std::string> notes;
    const std::string found = find_tag_folder(folder, tag, notes);
    if (found.empty()) throw fail(ErrorCode::config, folder, ": is no checkpoint folder of DeepSpeed");
    return open_tag(list_files(found), notes);
  }
};

}  // namespace drivetrain::deepspeed

DRIVETRAIN_PLUGIN(drivetrain::CheckpointFormat, "deepspeed", drivetrain::deepspeed::DeepSpeed)
