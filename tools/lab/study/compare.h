// `drivetrain study compare A B`: the cells that two studies share, as of two builds or two machines.
#pragma once

#include <string>

namespace drivetrain::study {

struct CompareRequest {
  std::string a, b;  // folders
  bool any_environment = false, json = false;
};

// What it prints. Throws Error(config) if the studies ran in different environments and that is not asked for, if they
// take other steps or another figure of a run, or if they share no cell.
std::string compare_text(const CompareRequest& request);

}  // namespace drivetrain::study
