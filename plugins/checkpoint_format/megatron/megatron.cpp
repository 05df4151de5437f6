// Checkpoint folders of Megatron-LM, as a format of checkpoints.
#include <drivetrain/checkpoint_format.h>
#include <drivetrain/error.h>
#include <drivetrain/services.h>

#include "readers.h"

namespace drivetrain::megatron {

class Megatron final : public CheckpointFormat {
 public:
  Megatron(const NoOptions&, const Services&) {}

  std::string recognizes(const std::string& folder) const override {
    const std::string form = form_below(folder);
    return form.empty() ? "" : concat("Megatron-LM, form ", form);
  }
  std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string& tag) const override {
    const Place place = find_place(folder, tag);
    if (place.form == "torch") return read_ranks(place);
    if (place.form == "torch_dist") return read_dist(place);
    throw fail(ErrorCode::checkpoint, place.folder, ": is a checkpoint of Megatron-LM of the form ", place.form,
               ", which is not read\n   load it with Megatron-LM and save it with --ckpt-format torch_dist");
  }
};

}  // namespace drivetrain::megatron

DRIVETRAIN_PLUGIN(drivetrain::CheckpointFormat, "megatron", drivetrain::megatron::Megatron)
