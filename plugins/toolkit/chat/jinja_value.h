// Values of a running template, with the meaning that Python gives them. Lists and objects are shared and not changed
// once they are made; what changes is a namespace. Thread: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::jinja {

// What is wrong, without its place; whoever runs the template adds the line.
struct Problem {
  std::string what;
};

class Var;
class Interpreter;
struct List;
struct Dict;
struct Namespace;
struct Callable;

struct Undefined {
  std::string what;  // "'x' is undefined"
};
struct None {};

class Var {
 public:
  Var() : data_(None{}) {}
  Var(Undefined u) : data_(std::move(u)) {}
  Var(bool b) : data_(b) {}
  Var(int64_t i) : data_(i) {}
  Var(double d) : data_(d) {}
  Var(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Var(std::string_view s) : Var(std::string(s)) {}
  Var(const char* s) : Var(std::string(s)) {}
  Var(List list);
  Var(Dict dict);
  Var(std::shared_ptr<Namespace> n) : data_(std::move(n)) {}
  Var(Callable c);

  template <class T>
  const T* get() const {
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, List> || std::is_same_v<T, Dict> ||
                  std::is_same_v<T, Callable>) {
      const auto* pointer = std::get_if<std::shared_ptr<const T>>(&data_);
      return pointer ? pointer->get() : nullptr;
    } else {
      return std::get_if<T>(&data_);
    }
  }
  Namespace* name_space() const {
    const auto* pointer = std::get_if<std::shared_ptr<Namespace>>(&data_);
    return pointer ? pointer->get() : nullptr;
  }
  bool is_undefined() const { return get<Undefined>(); }
  bool is_none() const { return get<None>(); }
  bool is_number() const { return get<bool>() || get<int64_t>() || get<double>(); }
  // Of a boolean or an integer, as Python counts them.
  bool is_integer() const { return get<bool>() || get<int64_t>(); }
  int64_t as_integer(const char* wanted_for) const;  // Problem for others
  double as_double() const;                          // of a number
  const std::string& as_text(const char* wanted_for) const;

  const char* type_name() const;  // Python's

 private:
  std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Callable>>
      data_;
};

struct List {
  std::vector<Var> items;
  bool tuple = false;
  bool lazy = false;  // Python has a generator here: it is true, has no length and no items by number
};

struct Dict {
  std::vector<std::pair<std::string, Var>> members;
  const Var* find(std::string_view key) const;
  void set(std::string_view key, Var value);
};

struct Namespace {
  Dict members;
};

struct Call {
  std::vector<Var> args;
  std::vector<std::pair<std::string, Var>> named;
  Interpreter& run;

  // The argument of that place or name; null if it is not there.
  const Var* find(size_t place, std::string_view name) const;
  const Var& want(size_t place, std::string_view name) const;  // Problem if it is not there
  // Problem for an argument that is none of those names, or more than there are.
  void only(std::initializer_list<std::string_view> names) const;
};

struct Callable {
  std::string name;
  std::function<Var(Call&)> call;
};

Var from_json(const Value& value);
bool truth(const Var& v);
// Of a filter or a test: what it is applied to, and whether an argument is there and true.
inline const Var& subject(const Call& call) { return call.args.front(); }
inline bool flag(const Call& call, size_t place, std::string_view name) {
  const Var* const found = call.find(place, name);
  return found && truth(*found);
}
bool equal(const Var& a, const Var& b);
// Less than 0, 0, more. Problem where Python cannot compare.
int compare(const Var& a, const Var& b);
std::string str(const Var& v);   // Problem for what has no text that a template could mean
std::string repr(const Var& v);  // as it stands in a list that is written out
std::string float_text(double d, const char* infinity, const char* nan);
// The items of what can be iterated: characters of a text, keys of an object. Problem for others.
std::vector<Var> iterate(const Var& v);
Undefined missing(const Var& of, std::string_view name);

struct JsonForm {
  bool ascii = false, sorted = false;
  bool lines = false;  // each item on a line of its own
  std::string indent, between = ", ", behind_key = ": ";
};
std::string to_json(const Var& v, const JsonForm& form);

}  // namespace drivetrain::jinja
