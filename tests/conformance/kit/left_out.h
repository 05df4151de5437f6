// What a case did not try, because the plugin does not declare it: told with the results, so that a passed suite says
// what it passed. Thread: any.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::test {

struct LeftOut {
  std::string what, why;
  bool operator==(const LeftOut&) const = default;
};

// Inside of a case. The same words twice count once.
void left_out(const std::string& what, const std::string& why);
// What was left out since the last call.
std::vector<LeftOut> take_left_out();

}  // namespace drivetrain::test
