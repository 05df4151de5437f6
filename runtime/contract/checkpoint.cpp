#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/checkpoint_store.h>

namespace drivetrain {

Checkpoint::~Checkpoint() = default;
CheckpointStore::~CheckpointStore() = default;
CheckpointPolicy::~CheckpointPolicy() = default;

}  // namespace drivetrain
