#include "jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

namespace drivetrain::jinja {

Var::Var(List list) : data_(std::make_shared<const List>(std::move(list))) {}
Var::Var(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}
Var::Var(Callable c) : data_(std::make_shared<const Callable>(std::move(c))) {}

int64_t Var::as_integer(const char* wanted_for) const {
  if (const bool* b = get<bool>()) return *b;
  if (const int64_t* i = get<int64_t>()) return *i;
  throw Problem{concat(wanted_for, " is ", type_name(), "; wanted an integer")};
}

double Var::as_double() const {
  if (const double* d = get<double>()) return *d;
  return static_cast<double>(as_integer("the number"));
}

const std::string& Var::as_text(const char* wanted_for) const {
  if (const std::string* s = get<std::string>()) return *s;
  if (const Undefined* u = get<Undefined>()) throw Problem{u->what};
  throw Problem{concat(wanted_for, " is ", type_name(), "; wanted a text")};
}

const char* Var::type_name() const {
  if (is_none()) return "None";
  if (is_undefined()) return "undefined";
  if (get<bool>()) return "a boolean";
  if (get<int64_t>()) return "an integer";
  if (get<double>()) return "a number";
  if (get<std::string>()) return "a text";
  if (get<List>()) return "a list";
  if (get<Dict>()) return "an object";
  return name_space() ? "a namespace" : "a function";
}

const Var* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

void Dict::set(std::string_view key, Var value) {
  for (auto& [name, old] : members)
    if (name == key) return void(old = std::move(value));
  members.emplace_back(key, std::move(value));
}

const Var* Call::find(size_t place, std::string_view name) const {
  if (place < args.size()) return &args[place];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

const Var& Call::want(size_t place, std::string_view name) const {
  if (const Var* found = find(place, name)) return *found;
  throw Problem{concat("the argument \"", name, "\" is not there")};
}

void Call::only(std::initializer_list<std::string_view> names) const {
  if (args.size() > names.size())
    throw Problem{concat(args.size(), " arguments are given, there are at most ", names.size())};
  for (const auto& [key, value] : named)
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw Problem{concat("there is no argument \"", key, "\"")};
}

Var from_json(const Value& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int();
  if (value.is_number()) return value.as_double();
  if (value.is_string()) {
    std::string text;
    append_replaced(value.as_string(), text);
    return text;
  }
  if (value.is_array()) {
    List list;
    for (const Value& item : value.items()) list.items.push_back(from_json(item));
    return list;
  }
  if (value.is_object()) {
    Dict dict;
    for (const Value::Member& member : value.members()) dict.set(member.key, from_json(member.value));
    return dict;
  }
  return {};
}

bool truth(const Var& v) {
  if (v.is_none() || v.is_undefined()) return false;
  if (v.is_number()) return v.as_double() != 0;
  if (const auto* s = v.get<std::string>()) return !s->empty();
  if (const auto* l = v.get<List>()) return l->lazy || !l->items.empty();
  if (const auto* d = v.get<Dict>()) return !d->members.empty();
  return true;
}

bool equal(const Var& a, const Var& b) {
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.as_integer("") == b.as_integer("") : a.as_double() == b.as_double();
  const auto *s = a.get<std::string>(), *t = b.get<std::string>();
  if (s && t) return *s == *t;
  const auto *l = a.get<List>(), *m = b.get<List>();
  if (l && m)
    return l->tuple == m->tuple &&
           std::equal(l->items.begin(), l->items.end(), m->items.begin(), m->items.end(), equal);
  const auto *d = a.get<Dict>(), *e = b.get<Dict>();
  if (d && e)
    return d->members.size() == e->members.size() &&
           std::all_of(d->members.begin(), d->members.end(), [&](const auto& member) {
             const Var* other = e->find(member.first);
             return other && equal(member.second, *other);
           });
  if (a.name_space() || b.name_space()) return a.name_space() == b.name_space();
  return a.get<Callable>() && a.get<Callable>() == b.get<Callable>();
}

int compare(const Var& a, const Var& b) {
  for (const Var* side : {&a, &b})
    if (const auto* u = side->get<Undefined>()) throw Problem{u->what};
  if (a.is_number() && b.is_number()) {
    const double x = a.as_double(), y = b.as_double();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  const auto *s = a.get<std::string>(), *t = b.get<std::string>();
  if (s && t) return s->compare(*t);  // bytes of UTF-8 are in the order of code points
  const auto *l = a.get<List>(), *m = b.get<List>();
  if (!l || !m) throw Problem{concat(a.type_name(), " and ", b.type_name(), " have no order")};
  for (size_t i = 0; i < std::min(l->items.size(), m->items.size()); ++i)
    if (!equal(l->items[i], m->items[i])) return compare(l->items[i], m->items[i]);
  return static_cast<int>(l->items.size()) - static_cast<int>(m->items.size());
}

std::vector<Var> iterate(const Var& v) {
  if (const auto* l = v.get<List>()) return l->items;
  std::vector<Var> items;
  if (v.is_undefined()) return items;
  if (const auto* d = v.get<Dict>()) {
    for (const auto& [key, value] : d->members) items.emplace_back(key);
    return items;
  }
  const auto* s = v.get<std::string>();
  if (!s) throw Problem{concat(v.type_name(), " has no items to iterate over")};
  for (size_t at = 0; at < s->size();) {
    const size_t length = code_point(*s, at).length;
    items.emplace_back(std::string_view(*s).substr(at, length));
    at += length;
  }
  return items;
}

Undefined missing(const Var& of, std::string_view name) {
  return {concat("\"", name, "\" is no attribute of ", of.type_name())};
}

// As Python's repr: the shortest digits that give the number back, an exponent below -4 and from 16 on.
std::string float_text(double d, const char* infinity, const char* nan) {
  if (std::isnan(d)) return nan;
  if (std::isinf(d)) return concat(d < 0 ? "-" : "", infinity);
  char digits[64];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), d, std::chars_format::scientific).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  const int exponent = std::atoi(std::string(text.substr(text.find('e') + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed = std::to_chars(std::begin(digits), std::end(digits), d, std::chars_format::fixed).ptr;
  std::string plain(digits, fixed);
  return plain.find('.') == std::string::npos ? plain + ".0" : plain;
}

}  // namespace drivetrain::jinja
