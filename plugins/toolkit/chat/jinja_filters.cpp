// Filters of texts and numbers.
#include "jinja_filters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <drivetrain/error.h>

#include "jinja_text.h"

namespace drivetrain::jinja {
namespace {

Var tojson(Call& call) {
  call.only({"x", "ensure_ascii", "indent", "separators", "sort_keys"});
  JsonForm form;
  form.ascii = flag(call, 1, "ensure_ascii"), form.sorted = flag(call, 4, "sort_keys");
  if (const Var* const indent = call.find(2, "indent"); indent && !indent->is_none()) {
    form.lines = true, form.between = ",";
    const auto* const text = indent->get<std::string>();
    form.indent =
        text ? *text : std::string(static_cast<size_t>(std::clamp<int64_t>(indent->as_integer("indent"), 0, 64)), ' ');
  }
  if (const Var* const separators = call.find(3, "separators"); separators && !separators->is_none()) {
    const std::vector<Var> both = iterate(*separators);
    if (both.size() != 2) throw Problem{"tojson: separators are two texts"};
    form.between = both[0].as_text("a separator"), form.behind_key = both[1].as_text("a separator");
  }
  if (const auto* u = subject(call).get<Undefined>()) throw Problem{concat("tojson: ", u->what)};
  return to_json(subject(call), form);
}

Var trim(Call& call) {
  const Var* const set = call.find(1, "chars");
  const std::string text = str(subject(call));
  return stripped(text, Side::both, set && !set->is_none() ? &set->as_text("the characters to trim") : nullptr);
}

template <Case how>
Var change_case(Call& call) {
  return in_case(str(subject(call)), how);
}

// A word begins behind blanks, dashes and brackets.
Var title(Call& call) {
  std::string out, word;
  const std::string text = str(subject(call));
  const auto add_word = [&] {
    out += in_case(word, Case::capital);
    word.clear();
  };
  for (const std::string_view c : characters(text)) {
    const bool parts = std::string_view("-({[<").find(c) != std::string_view::npos || stripped(c, Side::both).empty();
    if (parts) add_word();
    parts ? out += c : word += c;
  }
  add_word();
  return out;
}

Var replace(Call& call) {
  const Var* const count = call.find(3, "count");
  return replaced(str(subject(call)), str(call.want(1, "old")), str(call.want(2, "new")),
                  count && !count->is_none() ? count->as_integer("count") : -1);
}

Var indent(Call& call) {
  const Var* const width = call.find(1, "width");
  const auto* const given = width ? width->get<std::string>() : nullptr;
  const std::string blanks =
      given
          ? *given
          : std::string(static_cast<size_t>(std::clamp<int64_t>(width ? width->as_integer("width") : 4, 0, 1024)), ' ');
  const bool blank_too = flag(call, 3, "blank");
  std::string text = str(subject(call)) + "\n", out;
  bool first = true;
  for (const std::string_view line : lines_of(text)) {
    if (!first) out += '\n';
    if (first ? flag(call, 2, "first") : blank_too || !line.empty()) out += blanks;
    out += line;
    first = false;
  }
  return out;
}

Var otherwise(Call& call) {
  const Var& v = subject(call);
  if (!v.is_undefined() && !(flag(call, 2, "boolean") && !truth(v))) return v;
  const Var* const value = call.find(1, "default_value");
  return value ? *value : Var("");
}

Var to_integer(Call& call) {
  const Var& v = subject(call);
  const Var* const value = call.find(1, "default");
  if (v.is_number()) return static_cast<int64_t>(v.as_double());
  const auto* const text = v.get<std::string>();
  const std::string number = text ? std::string(stripped(*text, Side::both)) : "";
  char* end = nullptr;
  const double found = std::strtod(number.c_str(), &end);
  if (number.empty() || *end || !std::isfinite(found)) return value ? *value : Var(int64_t{0});
  return static_cast<int64_t>(found);
}

Var to_float(Call& call) {
  const Var& v = subject(call);
  const Var* const value = call.find(1, "default");
  if (v.is_number()) return v.as_double();
  const auto* const text = v.get<std::string>();
  const std::string number = text ? std::string(stripped(*text, Side::both)) : "";
  char* end = nullptr;
  const double found = std::strtod(number.c_str(), &end);
  return number.empty() || *end ? (value ? *value : Var(0.0)) : Var(found);
}

Var absolute(Call& call) {
  if (subject(call).is_integer()) return std::abs(subject(call).as_integer(""));
  return std::abs(subject(call).as_double());
}

Var rounded(Call& call) {
  const Var *const digits = call.find(1, "precision"), *const how = call.find(2, "method");
  const double by = std::pow(10.0, digits ? digits->as_double() : 0), x = subject(call).as_double() * by;
  const std::string method = how ? how->as_text("the method") : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    throw Problem{concat("round: no method \"", method, "\"")};
  return (method == "ceil" ? std::ceil(x) : method == "floor" ? std::floor(x) : std::nearbyint(x)) / by;
}

Var format(Call& call) {
  return formatted(str(subject(call)), List{{call.args.begin() + 1, call.args.end()}, true, false});
}

Var string(Call& call) { return str(subject(call)); }
Var same(Call& call) { return subject(call); }

const Filters kFilters = {{"tojson", tojson},
                          {"trim", trim},
                          {"upper", change_case<Case::upper>},
                          {"lower", change_case<Case::lower>},
                          {"capitalize", change_case<Case::capital>},
                          {"title", title},
                          {"replace", replace},
                          {"indent", indent},
                          {"default", otherwise},
                          {"d", otherwise},
                          {"int", to_integer},
                          {"float", to_float},
                          {"abs", absolute},
                          {"round", rounded},
                          {"format", format},
                          {"string", string},
                          {"safe", same}};

}  // namespace

Var apply_filter(const std::string& name, Call& call) {
  for (const Filters* filters : {&kFilters, &list_filters()})
    if (const auto found = filters->find(name); found != filters->end()) return found->second(call);
  throw Problem{concat("the template calls what is not there: the filter \"", name, "\"")};
}

}  // namespace drivetrain::jinja
