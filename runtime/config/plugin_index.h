// Finds the installed plugin that an entry of a section means. Beneath select_plugins; borrows the list.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/known_sections.h"
#include "config/section_entry.h"
#include "config/sections.h"

namespace drivetrain {

class PluginIndex {
 public:
  using List = std::vector<const KnownPlugin*>;

  PluginIndex(const std::vector<KnownPlugin>& plugins, const std::string& device)
      : plugins_(plugins), device_(device) {}

  List of_kind(const std::string& kind) const;
  List of_device(const std::string& kind) const;  // those of the kind that the run's device can use
  List with_type(const std::string& kind, const std::string& type) const;  // its name, else names ignoring case
  List defaults(const std::string& kind) const;                            // for this device

  // How the section may be written: as the claimant that `type` names declares it, else as all its claimants that the
  // run's device can use declare it, else as all of them do. Nothing if nobody claims it.
  std::optional<SectionForm> form_of(const std::string& section, const std::string& type = "") const;

  // Null, with a problem added, if the entry names no plugin, an absent one, or more than one.
  const KnownPlugin* find(const std::string& section, const SectionFact& fact, const SectionEntry& entry,
                          Problems& problems) const;

  static std::string names(const List& plugins);  // "a (also A, aa), b", "none"

 private:
  const KnownPlugin* find_by_type(const std::string& kind, const SectionEntry& entry, Problems& problems) const;
  void not_installed(const std::string& kind, const SectionEntry& entry, Problems& problems) const;
  void no_single(const List& candidates, const SectionFact& fact, const SectionEntry& entry, Problems& problems) const;
  bool fits_device(const KnownPlugin& p) const { return p.device.empty() || p.device == device_; }

  template <class Test>
  List matching(const Test& test) const {
    List list;
    for (const KnownPlugin& p : plugins_) {
      if (test(p)) list.push_back(&p);
    }
    return list;
  }

  const std::vector<KnownPlugin>& plugins_;
  const std::string device_;
};

}  // namespace drivetrain
