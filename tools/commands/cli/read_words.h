// Takes words apart by names of options: what is an option, what is its value, what is left. The only user of CLI11,
// whose headers take seconds to compile. Pure function.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"

namespace drivetrain::cli {

struct ReadWords {
  std::vector<Arguments::Given> given;  // in the order typed
  std::vector<std::string> plain;       // words that are neither options nor their values
  std::vector<std::string> unknown;     // options that `options` does not have, without "=value"
  std::string missing_value;            // the option that ends the line where its value should stand
  std::string value_too_many;           // a flag that was given one: "--plan=1"
};

ReadWords read_words(const std::vector<Option>& options, const std::vector<std::string>& words);

}  // namespace drivetrain::cli
