// For tests of the communicator that is linked into them: ranks, as threads or as processes, use it.
#pragma once

#include "conformance/communicator/processes.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {

// The first entry of the linked library.
inline std::shared_ptr<Communicator> make_linked_communicator(const std::string& json, const Services& services) {
  const auto& entry = static_cast<const DrivetrainDescriptor*>(drivetrain_plugin)->entries[0];
  Problems problems;
  const auto options = static_cast<const OptionTable*>(entry.options())
                           ->parse(parse_json(json, "test"), "communicator", "params", problems);
  problems.throw_if_any();
  const CreateArgs args{options.get(), &services};
  return std::shared_ptr<Communicator>(static_cast<Communicator*>(static_cast<Plugin*>(entry.create(&args))));
}

inline const bool linked_communicator_is_chosen = [] {
  communicator_maker = make_linked_communicator;
  return true;
}();

}  // namespace drivetrain::test
