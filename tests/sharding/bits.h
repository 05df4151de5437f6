// Everything of a run that must not depend on how the state is sharded, bit by bit. Thread: main.
#pragma once

#include <string>

#include "sharding/settings.h"
#include "support/train_threads.h"

namespace drivetrain::test {

struct Bits {
  std::string text;      // one line per step, then a digest of the weights
  std::string digest;    // of the text
  std::string resolved;  // the run's resolved.json
  double last_norm = 0;  // 0 where the last update was left out
};

Bits train_bits(const TableCell& cell);
// Any config and plugins.
Bits train_bits(Value config, int ranks, const Registry& registry = built_plugins());

// Of the first strategy, which shares nothing out, with shared values. Trained once per setting.
const Bits& reference_of(const Setting& setting);

}  // namespace drivetrain::test
