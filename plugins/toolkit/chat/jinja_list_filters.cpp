// Filters of lists and objects.
#include <algorithm>

#include <drivetrain/error.h>

#include "jinja_filters.h"
#include "jinja_text.h"

namespace drivetrain::jinja {
namespace {

// "function.name", with numbers for items of lists.
Var attribute_at(Var of, const Var& path) {
  if (path.is_integer()) return item_of(of, path);
  const std::string& names = path.as_text("an attribute");
  const std::string dot = ".";
  for (const std::string_view part : split_text(names, &dot, -1, false)) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    of = item_of(of, number ? Var(static_cast<int64_t>(std::stoll(std::string(part)))) : Var(part));
  }
  return of;
}

Var length(Call& call) {
  const Var& v = subject(call);
  if (const auto* s = v.get<std::string>()) return length_of(*s);
  if (const auto* l = v.get<List>(); l && !l->lazy) return static_cast<int64_t>(l->items.size());
  if (const auto* d = v.get<Dict>()) return static_cast<int64_t>(d->members.size());
  if (v.is_undefined()) return int64_t{0};
  throw Problem{concat(v.get<List>() ? "a list that a filter makes step by step" : v.type_name(), " has no length")};
}

Var first(Call& call) {
  const std::vector<Var> items = iterate(subject(call));
  return items.empty() ? Var(Undefined{"there is no first item of an empty list"}) : items.front();
}

Var last(Call& call) {
  if (const auto* l = subject(call).get<List>(); l && l->lazy)
    throw Problem{"a list that a filter makes step by step has no last item; put |list behind it"};
  const std::vector<Var> items = iterate(subject(call));
  return items.empty() ? Var(Undefined{"there is no last item of an empty list"}) : items.back();
}

Var list(Call& call) { return List{iterate(subject(call)), false, false}; }

Var reverse(Call& call) {
  std::vector<Var> items = iterate(subject(call));
  std::reverse(items.begin(), items.end());
  if (!subject(call).get<std::string>()) return List{std::move(items), false, true};
  std::string text;
  for (const Var& c : items) text += *c.get<std::string>();
  return text;
}

Var join(Call& call) {
  const Var *const between = call.find(1, "d"), *const attribute = call.find(2, "attribute");
  const std::string separator = between ? str(*between) : "";
  std::string out;
  bool first_item = true;
  for (const Var& item : iterate(subject(call))) {
    if (!first_item) out += separator;
    out += str(attribute && !attribute->is_none() ? attribute_at(item, *attribute) : item);
    if (out.size() > kMostBytes) throw Problem{concat("a text is longer than ", kMostBytes, " bytes")};
    first_item = false;
  }
  return out;
}

Var items(Call& call) {
  List made{{}, false, true};
  if (subject(call).is_undefined()) return made;
  const auto* const dict = subject(call).get<Dict>();
  if (!dict) throw Problem{concat("items: the value is ", subject(call).type_name(), "; wanted an object")};
  for (const auto& [key, value] : dict->members) made.items.push_back(List{{key, value}, true, false});
  return made;
}

// What is compared: texts in small letters unless their case counts.
Var sort_key(const Var& value, bool with_case) {
  const auto* const text = value.get<std::string>();
  return text && !with_case ? Var(in_case(*text, Case::lower)) : value;
}

Var dictsort(Call& call) {
  const auto* const dict = subject(call).get<Dict>();
  if (!dict) throw Problem{concat("dictsort: the value is ", subject(call).type_name(), "; wanted an object")};
  const Var* const by = call.find(2, "by");
  const bool with_case = flag(call, 1, "case_sensitive"), by_value = by && str(*by) == "value";
  List made;
  for (const auto& [key, value] : dict->members) made.items.push_back(List{{key, value}, true, false});
  const auto key_of = [&](const Var& pair) { return sort_key(pair.get<List>()->items[by_value], with_case); };
  std::stable_sort(made.items.begin(), made.items.end(), [&](const Var& a, const Var& b) {
    return flag(call, 3, "reverse") ? compare(key_of(b), key_of(a)) < 0 : compare(key_of(a), key_of(b)) < 0;
  });
  return made;
}

Var sort(Call& call) {
  const Var* const attribute = call.find(3, "attribute");
  const bool with_case = flag(call, 2, "case_sensitive"), backwards = flag(call, 1, "reverse");
  const auto key_of = [&](const Var& item) {
    return sort_key(attribute && !attribute->is_none() ? attribute_at(item, *attribute) : item, with_case);
  };
  List made{iterate(subject(call)), false, false};
  std::stable_sort(made.items.begin(), made.items.end(), [&](const Var& a, const Var& b) {
    return backwards ? compare(key_of(b), key_of(a)) < 0 : compare(key_of(a), key_of(b)) < 0;
  });
  return made;
}

Var unique(Call& call) {
  const Var* const attribute = call.find(2, "attribute");
  const bool with_case = flag(call, 1, "case_sensitive");
  std::vector<Var> seen;
  List made{{}, false, true};
  for (const Var& item : iterate(subject(call))) {
    Var key = sort_key(attribute && !attribute->is_none() ? attribute_at(item, *attribute) : item, with_case);
    if (std::any_of(seen.begin(), seen.end(), [&](const Var& other) { return equal(other, key); })) continue;
    seen.push_back(std::move(key));
    made.items.push_back(item);
  }
  return made;
}

Var map(Call& call) {
  List made{{}, false, true};
  const Var *const attribute = call.find(99, "attribute"), *const otherwise = call.find(99, "default");
  for (const Var& item : iterate(subject(call))) {
    if (attribute) {
      Var found = attribute_at(item, *attribute);
      made.items.push_back(found.is_undefined() && otherwise ? *otherwise : std::move(found));
      continue;
    }
    Call inner{{item}, call.named, call.run};
    const std::string& name = call.want(1, "the name of a filter").as_text("the name of a filter");
    inner.args.insert(inner.args.end(), call.args.begin() + 2, call.args.end());
    made.items.push_back(apply_filter(name, inner));
  }
  return made;
}

// select, reject: by a test of each item. selectattr, rejectattr: by one of its attribute.
template <bool by_attribute, bool wanted>
Var chosen(Call& call) {
  constexpr size_t kTest = by_attribute ? 2 : 1;
  List made{{}, false, true};
  for (const Var& item : iterate(subject(call))) {
    const Var value = by_attribute ? attribute_at(item, call.want(1, "attribute")) : item;
    bool holds = truth(value);
    if (call.args.size() > kTest) {
      Call inner{{value}, call.named, call.run};
      inner.args.insert(inner.args.end(), call.args.begin() + kTest + 1, call.args.end());
      holds = apply_test(call.args[kTest].as_text("the name of a test"), inner);
    }
    if (holds == wanted) made.items.push_back(item);
  }
  return made;
}

template <int sign>
Var extreme(Call& call) {
  const Var* const attribute = call.find(2, "attribute");
  const auto key_of = [&](const Var& item) {
    return sort_key(attribute ? attribute_at(item, *attribute) : item, flag(call, 1, "case_sensitive"));
  };
  const std::vector<Var> all = iterate(subject(call));
  if (all.empty()) return Undefined{"an empty list has no smallest and no largest item"};
  Var best = all.front();
  for (const Var& item : all)
    if (sign * compare(key_of(item), key_of(best)) > 0) best = item;
  return best;
}

Var sum(Call& call) {
  const Var *const attribute = call.find(1, "attribute"), *const start = call.find(2, "start");
  Var total = start ? *start : Var(int64_t{0});
  for (const Var& item : iterate(subject(call)))
    total = arithmetic("+", total, attribute && !attribute->is_none() ? attribute_at(item, *attribute) : item);
  return total;
}

}  // namespace

const Filters& list_filters() {
  static const Filters filters = {{"length", length},
                                  {"count", length},
                                  {"first", first},
                                  {"last", last},
                                  {"list", list},
                                  {"reverse", reverse},
                                  {"join", join},
                                  {"items", items},
                                  {"dictsort", dictsort},
                                  {"sort", sort},
                                  {"unique", unique},
                                  {"map", map},
                                  {"select", chosen<false, true>},
                                  {"reject", chosen<false, false>},
                                  {"selectattr", chosen<true, true>},
                                  {"rejectattr", chosen<true, false>},
                                  {"min", extreme<-1>},
                                  {"max", extreme<1>},
                                  {"sum", sum}};
  return filters;
}

}  // namespace drivetrain::jinja
