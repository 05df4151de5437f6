// The keys of `zero_optimization` that need more words than their meaning: what a key is for is written once, in
// options.cpp, and said by inspect, by the table of options and by the notes at the start of a run. Any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain {

struct KeyRule {
  enum class Of {
    idle,     // a key of DeepSpeed's that changes nothing here
    refused,  // a key of DeepSpeed's that is not in this version
    gathers   // of stage 3 only: what is gathered, and how long it stays
  };
  Of of;
  std::string key;
  Value quiet;      // nothing is said where it has this value; null: there is none
  std::string why;  // of idle and refused keys
};

// In the table's order.
const std::vector<KeyRule>& zero_key_rules();

}  // namespace drivetrain
