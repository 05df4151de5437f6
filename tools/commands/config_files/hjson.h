// Hjson, the relaxed JSON that DeepSpeed reads its files as: keys and texts without quotation marks, lines without
// commas, comments with #, no outer braces (https://hjson.github.io/syntax.html). Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "internal.h"

namespace drivetrain {

struct Hjson {
  Value value;
  std::vector<Value> bare_texts;  // texts without quotation marks: all of the line, a comma at its end too
};

// False if the text is no Hjson either: then `syntax` says why. Duplicate keys go to `problems`, as in read_json.
DRIVETRAIN_INTERNAL bool read_hjson(const std::string& text, const std::string& file, Hjson& hjson, Problem& syntax,
                                    Problems& problems);

}  // namespace drivetrain
