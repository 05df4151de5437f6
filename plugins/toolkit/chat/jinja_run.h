// Runs a template that was parsed. One use per object.
#pragma once

#include <cstddef>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja_syntax.h"

namespace drivetrain::jinja {

struct Scope {
  std::map<std::string, Var, std::less<>> variables;
  std::shared_ptr<Scope> outer;
};

class Interpreter {
 public:
  explicit Interpreter(std::map<std::string, Var, std::less<>> globals);

  // Problem for what goes wrong; `line` is then where.
  void run(const Program& program);
  int line() const { return line_; }

  std::string text;                                // what was written
  std::vector<std::pair<size_t, size_t>> answers;  // between {% generation %} and its end

  Var evaluate(const Expression& e);
  Var call(const Var& callee, Call& arguments);

 private:
  enum class Flow { on, break_loop, continue_loop };

  Flow run(const Body& body);
  Flow run(const Statement& s);
  Flow loop(const Statement& s);
  Flow in_scope(const Body& body);
  void describe_loop(const std::vector<Var>& items, size_t at);
  void assign(const Statement& s, Var value);
  void assign(const Target& target, Var value);
  Var macro(const Statement& s);
  Var call_macro(const Statement& s, const std::shared_ptr<Scope>& outer, const Call& arguments);
  std::string captured(const Body& body);
  void write(const std::string& piece);
  void count_step();

  Var name(const Expression& e) const;
  Var unary(const Expression& e);
  Var binary(const Expression& e);
  Var comparison(const Expression& e);
  Var slice(const Expression& e);
  Var object(const Expression& e);
  Var called(const Expression& e);
  Var filtered(const Expression& e, Var subject);
  Var tested(const Expression& e);
  void add_arguments(const std::vector<Argument>& from, Call& to);
  List items_of(const Expression& e);

  std::map<std::string, Var, std::less<>> globals_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = &text;
  bool describes_loops_ = false;
  int line_ = 0, depth_ = 0;
  int64_t steps_ = 0;
};

// An attribute: a method, or a member. An item: a member, or a method, as Jinja looks for them.
Var attribute_of(const Var& of, const std::string& name);
Var item_of(const Var& of, const Var& key);
Var slice_of(const Var& of, const Var& begin, const Var& end, const Var& step);
Var arithmetic(const std::string& sign, const Var& a, const Var& b);
bool is_in(const Var& what, const Var& where);
std::string formatted(const std::string& form, const Var& arguments);

// Null: there is no such method.
std::shared_ptr<const Callable> method_of(const Var& of, const std::string& name);
// `call.args[0]` is the subject. Problem for a name that there is not.
Var apply_filter(const std::string& name, Call& call);
bool apply_test(const std::string& name, Call& call);

// namespace, range, dict, raise_exception, strftime_now.
std::map<std::string, Var, std::less<>> global_functions(const std::tm* now);

constexpr size_t kMostBytes = 256 << 20;  // of a text that a template makes

}  // namespace drivetrain::jinja
