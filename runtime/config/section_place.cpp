#include "config/section_place.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "base/value_error.h"
#include "config/section_words.h"

namespace drivetrain {

std::string read_place(const SectionEntry& entry, const std::string& kind, const std::vector<KindRule>& kinds,
                       Problems& problems) {
  const Value& place = entry.outside_of;
  if (place.is_null()) return "";
  const auto rule_of = [&](const std::string& name) {
    return std::find_if(kinds.begin(), kinds.end(), [&](const KindRule& rule) { return rule.kind == name; });
  };
  const std::string path = concat(entry.path, ".", kOutsideOf);
  if (!place.is_string()) {
    problems.add(place.where, concat(path, ": expected the name of a kind, found ", describe(place)));
    return "";
  }
  const std::string& name = place.as_string();
  const std::vector<std::string>& known = rule_of(kind)->outside_of;
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  if (rule_of(name) != kinds.end())
    problems.add(place.where, concat(path, ": a ", kind, " cannot stand outside of ", name,
                                     "\n   it can outside of: ", join(known)));
  else
    problems.add(place.where, concat(path, ": \"", shown(name), "\" is no kind of plugin", suggestion(name, known)));
  return "";
}

}  // namespace drivetrain
