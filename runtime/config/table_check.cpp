#include "config/table_check.h"

#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/value_error.h"

namespace drivetrain {
namespace {

class TableCheck {
 public:
  // `defaults`: the table's own struct, inside the outermost one for a group.
  std::string of(const OptionTable& table, void* defaults, const std::string& path) {
    std::set<std::string> names;
    for (const OptionField& field : table.fields()) {
      take_name(names, field.name, path);
      for (const std::string& alias : field.aliases) take_name(names, alias, path);
      check_limits(field, path + field.name);
      if (field.group)
        of(*field.group, field.member(defaults), path + field.name + ".");
      else if (!field.required)
        check_default(field, field.get(defaults), path + field.name);
    }
    for (const OptionRedirect& r : table.redirects()) {
      take_name(names, r.name, path);
      if (!r.renamed_to.empty() && !table.find(r.renamed_to))
        found("\"", path, r.name, "\" is said to be renamed to \"", r.renamed_to, "\", which is no option");
    }
    return problem_;
  }

 private:
  template <class... Parts>
  void found(const Parts&... parts) {
    if (problem_.empty()) problem_ = concat(parts...);
  }

  void take_name(std::set<std::string>& names, const std::string& name, const std::string& path) {
    if (name.empty()) found("an option ", path.empty() ? "" : "of \"" + path + "\" ", "has no name");
    if (name.starts_with('_') || name.starts_with('$'))
      found("\"", path, name, "\" cannot be reached: keys that begin with _ or $ are notes");
    if (!names.insert(name).second) found("\"", path, name, "\" is given twice");
  }

  void check_limits(const OptionField& field, const std::string& name) {
    if (field.minimum && field.maximum && !(*field.minimum <= *field.maximum))
      found("\"", name, "\" has the range ", *field.minimum, " to ", *field.maximum, ", in which nothing lies");
    std::set<std::string> choices;
    for (const std::string& choice : field.choices)
      if (!choices.insert(lower_case(choice)).second) found("\"", name, "\" has the choice \"", choice, "\" twice");
  }

  void check_default(const OptionField& field, const Value& value, const std::string& name) {
    if (value.is_null()) return;
    if (!value.is_array()) return check_element(field, value, name);
    // A list that is empty by default may mean that nothing was said.
    if (field.length && !value.items().empty() && value.items().size() != *field.length)
      found("\"", name, "\" has the default ", short_json(value), ", but takes ", *field.length, " elements");
    for (const Value& item : value.items()) check_element(field, item, name);
  }

  void check_element(const OptionField& field, const Value& value, const std::string& name) {
    if (value.is_number()) {
      const double x = value.as_double();
      if (field.minimum && !(x >= *field.minimum))
        found("\"", name, "\" has the default ", short_json(value), ", but takes at least ", *field.minimum);
      if (field.maximum && !(x <= *field.maximum))
        found("\"", name, "\" has the default ", short_json(value), ", but takes at most ", *field.maximum);
    }
    if (!value.is_string() || field.choices.empty()) return;
    const auto same = [&](const std::string& c) { return lower_case(c) == lower_case(value.as_string()); };
    if (std::none_of(field.choices.begin(), field.choices.end(), same))
      found("\"", name, "\" has the default ", short_json(value), ", but takes ", quoted_choice(field.choices));
  }

  std::string problem_;
};

}  // namespace

std::string contradiction_in(const OptionTable& table) {
  const std::shared_ptr<void> defaults = table.defaults();
  return TableCheck().of(table, defaults.get(), "");
}

}  // namespace drivetrain
