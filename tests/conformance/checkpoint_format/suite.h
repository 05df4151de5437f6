// What every format of other programs' checkpoints must do. A format that writes is tried on what it writes; folders
// that another program has written are a test's to give.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_format.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

using FormatMaker = std::function<std::shared_ptr<CheckpointFormat>()>;

// Of a format that only reads, what can be said without a folder of its own.
Suite checkpoint_format_suite();

// One case of it, on formats that a test makes and on folders of this format beside those that it writes.
void run_checkpoint_format_case(const std::string& name, const FormatMaker& make,
                                const std::vector<std::string>& folders);
// All of them.
void run_checkpoint_format_cases(const FormatMaker& make, const std::vector<std::string>& folders);

}  // namespace drivetrain::test
