// What every store of checkpoints must do. It is given folders of its own; files that it keeps elsewhere are not looked
// for.
#pragma once

#include <functional>
#include <memory>

#include <drivetrain/checkpoint_store.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// A new object, as a rank makes one when a run starts.
using StoreMaker = std::function<std::shared_ptr<CheckpointStore>()>;

Suite checkpoint_store_suite();
// One case of it, on stores that a test makes.
void run_checkpoint_store_case(const std::string& name, const StoreMaker& make);

}  // namespace drivetrain::test
