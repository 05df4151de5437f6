// From the sections of a config to the plugins it asks for. A section is {type, params, enabled}, or bare options with
// an optional `enabled`, or a bare string (a type with default options), or a list of these: in order of preference for
// a kind with one place, all of them for a kind with any number. `true` is the section with default options. Main
// thread; no state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_settings.h"
#include "config/section_form.h"
#include "internal.h"

namespace drivetrain {

// What the manifests say about one installed plugin.
struct KnownPlugin {
  std::string kind, name;
  std::string section;                  // config section it claims; "" for none
  std::vector<std::string> type_names;  // further names for `type`, such as DeepSpeed's
  bool is_default = false;              // chosen when the config names none of its kind
  std::string device;                   // "cpu", "cuda"; "" = any
  SectionForm form{};                   // how its section may be written

  DRIVETRAIN_INTERNAL bool claims(const std::string& name) const;  // its section, by that name or an alias
};

// Of a section that nobody claims and that resembles nothing that is known.
inline constexpr const char* kMissingFolder =
    "\n   if a plugin reads it, the plugin's folder is none of those that are searched: --plugin-path FOLDER";

struct KindRule {
  enum Count { exactly_one, at_most_one, any_number };
  std::string kind;
  Count count = at_most_one;
  std::string section{};  // what users write for the kind, "scheduler" for lr_schedule; "": the kind's own name
  std::vector<std::string> outside_of{};  // kinds that its plugins may be put outside of; none: they have one place

  const std::string& key() const { return section.empty() ? kind : section; }
};

struct Selection {
  std::string kind, name;
  Value params;         // an object, for the plugin's option table
  Position where;       // of the section; no file where a default was chosen
  std::string path;     // of the params, for messages: "optimizer.params", "monitors[1].params", "zero_optimization"
  bool enabled = true;  // false: switched off by the file; it is here so that its options get checked too
  std::vector<Selection> fallbacks;  // the rest of an order of preference, installed ones only
  std::string outside_of{};          // the kind that it stands directly outside of; "": where its own kind does
  // Of an evaluation: the name of its set, and the steps between two evaluations where the set says so.
  std::string set{};
  std::optional<int64_t> interval{};
};

// Which of the selected plugins has an option of this name, and how the file reaches it: `optimizer/x: write
// "optimizer": {"params": {"lr": ...}}`; "" for none.
using OptionHome = std::function<std::string(const std::string& key, const std::vector<Selection>& selections)>;

// Every plugin the config asks for and the defaults for what it leaves out, in the order of `kinds`. Disabled
// selections are included (see `enabled`). Also refuses top-level keys that mean nothing. A key is, in this order: a
// setting of the run, the section of one of `kinds`, one that a plugin claims, one of known_sections.json, the name of
// a kind. A plugin that is not installed is an ErrorCode::plugin problem with the list of what is.
DRIVETRAIN_INTERNAL std::vector<Selection> select_plugins(const Value& config, const std::vector<KindRule>& kinds,
                                                          const std::vector<KnownPlugin>& plugins,
                                                          const std::string& device, Problems& problems,
                                                          const OptionHome& home_of = {});

// The whole configuration with every default written out: the runtime's settings with all three batch sizes, then each
// kind's section as {type, params}. Loading it again gives the same settings and selections. `options_of` returns all
// options of a selection (its table's to_value). Where a default plugin was switched off, that is written too.
DRIVETRAIN_INTERNAL Value resolved_config(const RunSettings& settings, const BatchSizes& batch,
                                          const std::vector<Selection>& selections, const std::vector<KindRule>& kinds,
                                          const std::vector<KnownPlugin>& plugins,
                                          const std::function<Value(const Selection&)>& options_of);

}  // namespace drivetrain
