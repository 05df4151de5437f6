// Universal checkpoints of DeepSpeed, as a format of checkpoints.
#include <drivetrain/checkpoint_format.h>
#include <drivetrain/error.h>
#include <drivetrain/services.h>

#include "universal.h"

namespace drivetrain::universal {

class Universal final : public CheckpointFormat {
 public:
  Universal(const NoOptions&, const Services&) {}

  std::string recognizes(const std::string& folder) const override {
    try {
      return find_folder(folder, "").empty() ? "" : "DeepSpeed, universal checkpoint";
    } catch (const Error& e) {
      if (e.code() != ErrorCode::config) throw;
      return "DeepSpeed, universal checkpoints";  // several of them
    }
  }

  std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string& tag) const override {
    const std::string found = find_folder(folder, tag);
    if (found.empty()) throw fail(ErrorCode::config, folder, ": is no universal checkpoint of DeepSpeed");
    return read_folder(found);
  }

  bool writes() const override { return true; }
  void write(const std::string& folder, const Checkpoint& state) const override { write_folder(folder, state); }
};

}  // namespace drivetrain::universal

DRIVETRAIN_PLUGIN(drivetrain::CheckpointFormat, "deepspeed_universal", drivetrain::universal::Universal)
