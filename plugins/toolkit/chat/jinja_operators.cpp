// Operators on values, with Python's meaning.
#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>

#include "jinja_run.h"
#include "jinja_text.h"

namespace drivetrain::jinja {
namespace {

Problem no_operator(const std::string& sign, const Var& a, const Var& b) {
  for (const Var* side : {&a, &b})
    if (const auto* u = side->get<Undefined>()) return {u->what};
  return {concat("\"", sign, "\" is not defined for ", a.type_name(), " and ", b.type_name())};
}

Var joined(const Var& a, const Var& b) {
  const auto *s = a.get<std::string>(), *t = b.get<std::string>();
  if (s && t) {
    if (s->size() + t->size() > kMostBytes) throw Problem{concat("a text is longer than ", kMostBytes, " bytes")};
    return *s + *t;
  }
  const auto *l = a.get<List>(), *m = b.get<List>();
  if (!l || !m || l->lazy || m->lazy || l->tuple != m->tuple) throw no_operator("+", a, b);
  if (l->items.size() + m->items.size() > kMostBytes / sizeof(Var)) throw Problem{"a list is too long"};
  List both = *l;
  both.items.insert(both.items.end(), m->items.begin(), m->items.end());
  return both;
}

Var repeated(const Var& what, int64_t times) {
  const size_t count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const auto* s = what.get<std::string>()) {
    if (s->size() * count > kMostBytes || count > kMostBytes)
      throw Problem{concat("a text is longer than ", kMostBytes, " bytes")};
    std::string out;
    for (size_t i = 0; i < count && !s->empty(); ++i) out += *s;
    return out;
  }
  const List& list = *what.get<List>();
  if (count > kMostBytes || list.items.size() * count > kMostBytes / sizeof(Var)) throw Problem{"a list is too long"};
  List out{{}, list.tuple, false};
  for (size_t i = 0; i < count && !list.items.empty(); ++i)
    out.items.insert(out.items.end(), list.items.begin(), list.items.end());
  return out;
}

Var with_integers(const std::string& sign, int64_t x, int64_t y) {
  int64_t result = 0;
  const bool too_large = sign == "+"   ? __builtin_add_overflow(x, y, &result)
                         : sign == "-" ? __builtin_sub_overflow(x, y, &result)
                                       : __builtin_mul_overflow(x, y, &result);
  if (too_large) throw Problem{concat("the result of \"", sign, "\" is too large")};
  return result;
}

Var divided(const std::string& sign, const Var& a, const Var& b) {
  if (b.as_double() == 0) throw Problem{"a number is divided by zero"};
  if (sign == "/") return a.as_double() / b.as_double();
  if (!a.is_integer() || !b.is_integer()) {
    const double x = a.as_double(), y = b.as_double();
    return sign == "//" ? std::floor(x / y) : x - y * std::floor(x / y);
  }
  const int64_t x = a.as_integer(""), y = b.as_integer("");
  if (y == -1) return sign == "//" ? with_integers("-", 0, x) : Var(int64_t{0});
  const int64_t rest = x % y, down = rest != 0 && (rest < 0) != (y < 0);
  return sign == "//" ? x / y - down : rest + (down ? y : 0);
}

Var power_of(const Var& a, const Var& b) {
  if (!a.is_integer() || !b.is_integer() || b.as_integer("") < 0) return std::pow(a.as_double(), b.as_double());
  Var out = int64_t{1};
  for (int64_t i = 0; i < b.as_integer("") && i < 64; ++i)
    out = with_integers("*", out.as_integer(""), a.as_integer(""));
  return out;
}

}  // namespace

Var arithmetic(const std::string& sign, const Var& a, const Var& b) {
  if (sign == "~") return joined(str(a), str(b));
  if (a.is_number() && b.is_number()) {
    if (sign == "/" || sign == "//" || sign == "%") return divided(sign, a, b);
    if (sign == "**") return power_of(a, b);
    if (a.is_integer() && b.is_integer()) return with_integers(sign, a.as_integer(""), b.as_integer(""));
    const double x = a.as_double(), y = b.as_double();
    return sign == "+" ? x + y : sign == "-" ? x - y : x * y;
  }
  if (sign == "+") return joined(a, b);
  const auto is_sequence = [](const Var& v) { return v.get<std::string>() || (v.get<List>() && !v.get<List>()->lazy); };
  if (sign == "*" && is_sequence(a) && b.is_integer()) return repeated(a, b.as_integer(""));
  if (sign == "*" && is_sequence(b) && a.is_integer()) return repeated(b, a.as_integer(""));
  if (sign == "%" && a.get<std::string>()) return formatted(*a.get<std::string>(), b);
  throw no_operator(sign, a, b);
}

bool is_in(const Var& what, const Var& where) {
  if (const auto* text = where.get<std::string>()) {
    if (!what.get<std::string>())
      throw Problem{what.is_undefined() ? what.get<Undefined>()->what
                                        : concat("\"in\" looks for ", what.type_name(), " in a text; wanted a text")};
    return text->find(*what.get<std::string>()) != std::string::npos;
  }
  if (const auto* dict = where.get<Dict>()) {
    const auto* key = what.get<std::string>();
    return key && dict->find(*key);
  }
  const std::vector<Var> items = iterate(where);
  return std::any_of(items.begin(), items.end(), [&](const Var& item) { return equal(item, what); });
}

Var attribute_of(const Var& of, const std::string& name) {
  if (const auto* u = of.get<Undefined>()) throw Problem{u->what};
  if (const auto method = method_of(of, name)) return *method;
  const Dict* const dict = of.name_space() ? &of.name_space()->members : of.get<Dict>();
  const Var* const found = dict ? dict->find(name) : nullptr;
  return found ? *found : Var(missing(of, name));
}

Var item_of(const Var& of, const Var& key) {
  if (const auto* u = of.get<Undefined>()) throw Problem{u->what};
  if (const auto* text = key.get<std::string>()) {
    if (const Dict* dict = of.get<Dict>())
      if (const Var* found = dict->find(*text)) return *found;
    return attribute_of(of, *text);
  }
  const auto at = [&](int64_t length) {
    return key.as_integer("") < 0 ? key.as_integer("") + length : key.as_integer("");
  };
  if (const auto* list = of.get<List>(); list && !list->lazy && key.is_integer()) {
    const int64_t i = at(static_cast<int64_t>(list->items.size()));
    if (i >= 0 && i < static_cast<int64_t>(list->items.size())) return list->items[static_cast<size_t>(i)];
  }
  if (const auto* text = of.get<std::string>(); text && key.is_integer()) {
    const std::vector<std::string_view> all = characters(*text);
    const int64_t i = at(static_cast<int64_t>(all.size()));
    if (i >= 0 && i < static_cast<int64_t>(all.size())) return all[static_cast<size_t>(i)];
  }
  return Undefined{concat(of.type_name(), " has no item ", key.is_integer() ? str(key) : std::string(key.type_name()))};
}

Var slice_of(const Var& of, const Var& begin, const Var& end, const Var& step) {
  if (const auto* u = of.get<Undefined>()) throw Problem{u->what};
  const auto* text = of.get<std::string>();
  const auto* list = of.get<List>();
  if ((!text && !list) || (list && list->lazy)) throw Problem{concat(of.type_name(), " cannot be sliced")};
  const std::vector<std::string_view> letters = text ? characters(*text) : std::vector<std::string_view>();
  const auto length = static_cast<int64_t>(text ? letters.size() : list->items.size());
  const int64_t by = step.is_none() ? 1 : step.as_integer("the step of a slice");
  if (by == 0) throw Problem{"the step of a slice is 0"};
  const auto bound = [&](const Var& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    const int64_t given = v.as_integer("the bound of a slice");
    return std::clamp(given < 0 ? given + length : given, by < 0 ? int64_t{-1} : 0, by < 0 ? length - 1 : length);
  };
  const int64_t first = bound(begin, by < 0 ? length - 1 : 0), last = bound(end, by < 0 ? -1 : length);
  std::string piece;
  List part{{}, list && list->tuple, false};
  for (int64_t i = first; by < 0 ? i > last : i < last; i += by) {
    if (text)
      piece += letters[static_cast<size_t>(i)];
    else
      part.items.push_back(list->items[static_cast<size_t>(i)]);
  }
  return text ? Var(std::move(piece)) : Var(std::move(part));
}

}  // namespace drivetrain::jinja
