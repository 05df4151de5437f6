// Tests ("x is defined") and the functions that every template has.
#include <algorithm>
#include <map>

#include <drivetrain/error.h>

#include "jinja_run.h"
#include "jinja_text.h"

namespace drivetrain::jinja {
namespace {

using Test = bool (*)(Call&);

constexpr int64_t kLongestRange = 100'000;  // as the sandbox of Jinja has it

const Var& other(const Call& call) { return call.want(1, "other"); }

bool is_even(Call& call) { return subject(call).as_integer("what is even or odd") % 2 == 0; }
bool is_divisible(Call& call) {
  const int64_t by = other(call).as_integer("the divisor");
  if (by == 0) throw Problem{"a number is divided by zero"};
  return subject(call).as_integer("what is divided") % by == 0;
}
bool is_sequence(Call& call) {
  const Var& v = subject(call);
  return v.get<std::string>() || (v.get<List>() && !v.get<List>()->lazy) || v.get<Dict>() || v.is_undefined();
}
bool is_iterable(Call& call) {
  const Var& v = subject(call);
  return v.get<std::string>() || v.get<List>() || v.get<Dict>() || v.is_undefined();
}
bool is_lower(Call& call) {
  const std::string text = str(subject(call));
  return in_case(text, Case::lower) == text && in_case(text, Case::upper) != text;
}
bool is_upper(Call& call) {
  const std::string text = str(subject(call));
  return in_case(text, Case::upper) == text && in_case(text, Case::lower) != text;
}

const std::map<std::string, Test, std::less<>> kTests = {
    {"defined", [](Call& c) { return !subject(c).is_undefined(); }},
    {"undefined", [](Call& c) { return subject(c).is_undefined(); }},
    {"none", [](Call& c) { return subject(c).is_none(); }},
    {"boolean", [](Call& c) { return subject(c).get<bool>() != nullptr; }},
    {"true", [](Call& c) { return subject(c).get<bool>() && *subject(c).get<bool>(); }},
    {"false", [](Call& c) { return subject(c).get<bool>() && !*subject(c).get<bool>(); }},
    {"integer", [](Call& c) { return subject(c).get<int64_t>() != nullptr; }},
    {"float", [](Call& c) { return subject(c).get<double>() != nullptr; }},
    {"number", [](Call& c) { return subject(c).is_number(); }},
    {"string", [](Call& c) { return subject(c).get<std::string>() != nullptr; }},
    {"mapping", [](Call& c) { return subject(c).get<Dict>() != nullptr; }},
    {"sequence", is_sequence},
    {"iterable", is_iterable},
    {"callable", [](Call& c) { return subject(c).get<Callable>() != nullptr; }},
    {"even", is_even},
    {"odd", [](Call& c) { return !is_even(c); }},
    {"divisibleby", is_divisible},
    {"lower", is_lower},
    {"upper", is_upper},
    {"in", [](Call& c) { return is_in(subject(c), other(c)); }},
    {"eq", [](Call& c) { return equal(subject(c), other(c)); }},
    {"ne", [](Call& c) { return !equal(subject(c), other(c)); }},
    {"lt", [](Call& c) { return compare(subject(c), other(c)) < 0; }},
    {"le", [](Call& c) { return compare(subject(c), other(c)) <= 0; }},
    {"gt", [](Call& c) { return compare(subject(c), other(c)) > 0; }},
    {"ge", [](Call& c) { return compare(subject(c), other(c)) >= 0; }}};
const std::map<std::string, std::string, std::less<>> kOtherNames = {
    {"==", "eq"}, {"equalto", "eq"},     {"!=", "ne"}, {"<", "lt"}, {"lessthan", "lt"},
    {"<=", "le"}, {"greaterthan", "gt"}, {">", "gt"},  {">=", "ge"}};

Var make_namespace(Call& call) {
  const auto made = std::make_shared<Namespace>();
  for (const Var& from : call.args) {
    if (!from.get<Dict>()) throw Problem{concat("namespace is made of ", from.type_name(), "; wanted an object")};
    for (const auto& [key, value] : from.get<Dict>()->members) made->members.set(key, value);
  }
  for (const auto& [key, value] : call.named) made->members.set(key, value);
  return made;
}

Var make_range(Call& call) {
  if (call.args.empty() || call.args.size() > 3) throw Problem{"range takes one to three integers"};
  const auto at = [&](size_t i) { return call.args[i].as_integer("an argument of range"); };
  const int64_t begin = call.args.size() > 1 ? at(0) : 0, end = at(call.args.size() > 1 ? 1 : 0);
  const int64_t step = call.args.size() > 2 ? at(2) : 1;
  if (step == 0) throw Problem{"the step of range is 0"};
  List list;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    if (static_cast<int64_t>(list.items.size()) == kLongestRange)
      throw Problem{concat("a range has more than ", kLongestRange, " numbers")};
    list.items.emplace_back(i);
  }
  return list;
}

Var make_dict(Call& call) {
  Dict dict;
  if (!call.args.empty()) {
    if (!call.args[0].get<Dict>()) throw Problem{"dict is made of objects and named arguments only"};
    dict = *call.args[0].get<Dict>();
  }
  for (const auto& [key, value] : call.named) dict.set(key, value);
  return dict;
}

Var raise(Call& call) {
  throw Problem{concat("the template refuses the conversation: ", str(call.want(0, "message")))};
}

}  // namespace

bool apply_test(const std::string& name, Call& call) {
  const auto alias = kOtherNames.find(name);
  const auto found = kTests.find(alias == kOtherNames.end() ? name : alias->second);
  if (found == kTests.end()) throw Problem{concat("the template calls what is not there: the test \"", name, "\"")};
  return found->second(call);
}

std::map<std::string, Var, std::less<>> global_functions(const std::tm* now) {
  std::tm time{};
  if (now) {
    time = *now;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &time);
  }
  const auto date = [time](Call& call) -> Var {
    const std::string& form = call.want(0, "format").as_text("the format of a date");
    char text[1024];
    return std::string(text, form.empty() ? 0 : std::strftime(text, sizeof text, form.c_str(), &time));
  };
  return {{"namespace", Callable{"namespace", make_namespace}},
          {"range", Callable{"range", make_range}},
          {"dict", Callable{"dict", make_dict}},
          {"raise_exception", Callable{"raise_exception", raise}},
          {"strftime_now", Callable{"strftime_now", date}}};
}

}  // namespace drivetrain::jinja
