// "auto" in the options of plugins: the value that the option's own rule gives (TableBuilder::automatic). Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/sections.h"
#include "plugin/registry.h"

namespace drivetrain {

// What rules ask. A model or an optimizer is created for it where a rule wants to know, and only then.
class ConfigFacts final : public AutoFacts {
 public:
  ConfigFacts(const std::vector<Selection>& selections, const Registry& registry, int64_t train_steps)
      : selections_(selections), registry_(registry), train_steps_(train_steps) {}

  int64_t hidden_size() const override;
  double lr() const override;
  int64_t train_steps() const override { return train_steps_; }

 private:
  void ask(const char* kind) const;

  const std::vector<Selection>& selections_;
  const Registry& registry_;
  const int64_t train_steps_;
  mutable std::optional<int64_t> hidden_size_;
  mutable std::optional<double> lr_;
};

// `section` with values in the place of "auto", where the table has a rule; `problems` is told key, value and rule.
Value with_auto_values(const OptionTable& table, Value section, const std::string& path, const AutoFacts& facts,
                       Problems& problems);

}  // namespace drivetrain
