// PyTorch's distributed checkpoint, as a format of checkpoints.
#include "dcp.h"

#include <filesystem>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/error.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/torch_files/dcp_folder.h>

namespace drivetrain::dcp {

class Dcp final : public CheckpointFormat {
 public:
  Dcp(const NoOptions&, const Services&) {}

  std::string recognizes(const std::string& folder) const override {
    std::error_code unknown;
    // With this file beside it, it is Megatron-LM's.
    if (std::filesystem::exists(folder + "/metadata.json", unknown)) return {};
    return std::filesystem::is_regular_file(folder + "/" + DcpFolder::kMetadata, unknown)
               ? "PyTorch distributed checkpoint"
           : has_parts_of_accelerate(folder) ? "PyTorch distributed checkpoint in accelerate's folders"
                                             : "";
  }
  std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string& tag) const override {
    if (!tag.empty())
      throw fail(ErrorCode::config, folder, ": a PyTorch distributed checkpoint has no tags; found ", tag);
    return read_folder(folder);
  }
  bool writes() const override { return true; }
  void write(const std::string& folder, const Checkpoint& state) const override { write_folder(folder, state); }
};

}  // namespace drivetrain::dcp

DRIVETRAIN_PLUGIN(drivetrain::CheckpointFormat, "dcp", drivetrain::dcp::Dcp)
