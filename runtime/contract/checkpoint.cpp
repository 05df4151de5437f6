#include <drivetrain/checkpoint_format.h>
#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/checkpoint_store.h>
#include <drivetrain/error.h>

namespace drivetrain {

Checkpoint::~Checkpoint() = default;
CheckpointStore::~CheckpointStore() = default;
CheckpointPolicy::~CheckpointPolicy() = default;
CheckpointFormat::~CheckpointFormat() = default;

void CheckpointFormat::write(const std::string& folder, const Checkpoint&) const {
  throw fail(ErrorCode::internal, folder, ": this checkpoint format is read only; ask writes() first");
}

}  // namespace drivetrain
