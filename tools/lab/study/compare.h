// `drivetrain study compare A B`: the cells that two studies share, as of two builds or two machines.
#pragma once

#include <string>

namespace drivetrain::study {

struct CompareRequest {
  std::string a, b;       // folders
  std::string outcome{};  // a figure's name or an outcome in JSON; "": those of the two studies
  bool any_environment = false, json = false;
};

// What it prints. Throws Error(config) if the studies ran in different environments and that is not asked for, if they
// take other steps or another figure of a run, if they share no cell, or if no run has the outcome that is asked for.
std::string compare_text(const CompareRequest& request);

}  // namespace drivetrain::study
