// What differs between the config of the run that saved a checkpoint and the one that goes on from it, and what that
// means for the numbers. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

// Ordered: each says more than the one before.
enum class ChangeEffect {
  none,      // the numbers are the same bits
  rounding,  // the same computation with sums in another order
  numbers,   // another computation: learning rate, batch size, data
};

struct ConfigChange {
  std::string path;         // "optimizer.params.lr"
  std::string before, now;  // as JSON; "absent" where there is none
  ChangeEffect effect = ChangeEffect::numbers;

  DRIVETRAIN_INTERNAL std::string text() const;  // "optimizer.params.lr: 0.001 then, 0.0005 now"
};

// What a plugin's manifest says of a run that goes on with it or without it. Of what it does not say, numbers change.
struct DeclaredEffects {
  std::string kind, name;
  bool rounding = false;               // without it and with any other options: the same numbers but for rounding
  std::vector<std::string> same_bits;  // options that change no bit
};
// Of every plugin that may be opened and declares something.
DRIVETRAIN_INTERNAL std::vector<DeclaredEffects> declared_effects(const Registry& registry);

// Both as resolved.json has them; what begins with "_" is left out. `declared`: by the plugins of now.
DRIVETRAIN_INTERNAL std::vector<ConfigChange> config_changes(const Value& before, const Value& now,
                                                             const std::vector<DeclaredEffects>& declared = {});

// Of settings that another program kept in DeepSpeed's form: those that ours has, too, with another value, and that
// change the numbers. Nulls say nothing, nor do texts: types have other names there, and "auto" is none.
DRIVETRAIN_INTERNAL std::vector<ConfigChange> common_changes(const Value& theirs, const Value& ours);

// Of two DatasetFacts::notes. Everything there is about the numbers, but times of change ("_mtime_ns") beside a
// "digest" that is the same: files that were copied again. Those are one entry without effect.
DRIVETRAIN_INTERNAL std::vector<ConfigChange> data_changes(const Value& before, const Value& now);

}  // namespace drivetrain
