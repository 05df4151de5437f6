// What expressions are worth.
#include <drivetrain/error.h>

#include "jinja_run.h"

namespace drivetrain::jinja {

Var Interpreter::evaluate(const Expression& e) {
  count_step();
  line_ = e.line;
  switch (e.kind) {
    case ExpressionKind::constant:
      return e.value;
    case ExpressionKind::name:
      return name(e);
    case ExpressionKind::list:
      return items_of(e);
    case ExpressionKind::tuple: {
      List list = items_of(e);
      list.tuple = true;
      return list;
    }
    case ExpressionKind::object:
      return object(e);
    case ExpressionKind::attribute: {
      const Var of = evaluate(*e.items[0]);
      line_ = e.line;
      return attribute_of(of, e.name);
    }
    case ExpressionKind::item: {
      const Var of = evaluate(*e.items[0]), key = evaluate(*e.items[1]);
      line_ = e.line;
      return item_of(of, key);
    }
    case ExpressionKind::slice:
      return slice(e);
    case ExpressionKind::call:
      return called(e);
    case ExpressionKind::filter:
      return filtered(e, {});
    case ExpressionKind::test:
      return tested(e);
    case ExpressionKind::unary:
      return unary(e);
    case ExpressionKind::binary:
      return binary(e);
    case ExpressionKind::comparison:
      return comparison(e);
    case ExpressionKind::conditional:
      if (truth(evaluate(*e.items[1]))) return evaluate(*e.items[0]);
      return e.items[2] ? evaluate(*e.items[2]) : Var(Undefined{"an \"if\" without \"else\" has no value"});
  }
  return {};
}

Var Interpreter::name(const Expression& e) const {
  for (const Scope* scope = scope_.get(); scope; scope = scope->outer.get())
    if (const auto found = scope->variables.find(e.name); found != scope->variables.end()) return found->second;
  if (const auto found = globals_.find(e.name); found != globals_.end()) return found->second;
  return Undefined{concat("\"", e.name, "\" is not defined")};
}

List Interpreter::items_of(const Expression& e) {
  List list;
  for (const ExpressionPtr& item : e.items) list.items.push_back(evaluate(*item));
  return list;
}

Var Interpreter::object(const Expression& e) {
  Dict dict;
  for (size_t i = 0; i < e.items.size(); i += 2) {
    const Var key = evaluate(*e.items[i]);
    if (!key.get<std::string>()) throw Problem{concat("a key of an object is ", key.type_name(), "; wanted a text")};
    dict.set(*key.get<std::string>(), evaluate(*e.items[i + 1]));
  }
  return dict;
}

Var Interpreter::slice(const Expression& e) {
  const auto part = [&](size_t i) { return e.items[i] ? evaluate(*e.items[i]) : Var(); };
  const Var of = evaluate(*e.items[0]), begin = part(1), end = part(2), step = part(3);
  line_ = e.line;
  return slice_of(of, begin, end, step);
}

void Interpreter::add_arguments(const std::vector<Argument>& from, Call& to) {
  for (const Argument& argument : from) {
    Var value = evaluate(*argument.value);
    if (argument.name.empty())
      to.args.push_back(std::move(value));
    else
      to.named.emplace_back(argument.name, std::move(value));
  }
}

Var Interpreter::called(const Expression& e) {
  const Var callee = evaluate(*e.items[0]);
  Call arguments{{}, {}, *this};
  add_arguments(e.arguments, arguments);
  line_ = e.line;
  return call(callee, arguments);
}

// A chain of filters whose first subject is given where it has none.
Var Interpreter::filtered(const Expression& e, Var subject) {
  Call arguments{{}, {}, *this};
  const Expression* const inner = e.items[0].get();
  if (!inner)
    arguments.args.push_back(std::move(subject));
  else if (inner->kind == ExpressionKind::filter)
    arguments.args.push_back(filtered(*inner, std::move(subject)));
  else
    arguments.args.push_back(evaluate(*inner));
  add_arguments(e.arguments, arguments);
  line_ = e.line;
  return apply_filter(e.name, arguments);
}

Var Interpreter::tested(const Expression& e) {
  Call arguments{{evaluate(*e.items[0])}, {}, *this};
  add_arguments(e.arguments, arguments);
  line_ = e.line;
  return apply_test(e.name, arguments);
}

Var Interpreter::unary(const Expression& e) {
  const Var of = evaluate(*e.items[0]);
  line_ = e.line;
  if (e.name == "not") return !truth(of);
  return e.name == "-" ? arithmetic("-", int64_t{0}, of) : arithmetic("+", int64_t{0}, of);
}

Var Interpreter::binary(const Expression& e) {
  Var left = evaluate(*e.items[0]);
  if (e.name == "and") return truth(left) ? evaluate(*e.items[1]) : left;
  if (e.name == "or") return truth(left) ? left : evaluate(*e.items[1]);
  const Var right = evaluate(*e.items[1]);
  line_ = e.line;
  return arithmetic(e.name, left, right);
}

Var Interpreter::comparison(const Expression& e) {
  Var left = evaluate(*e.items[0]);
  for (size_t i = 0; i < e.names.size(); ++i) {
    Var right = evaluate(*e.items[i + 1]);
    line_ = e.line;
    const std::string& how = e.names[i];
    const bool holds = how == "=="       ? equal(left, right)
                       : how == "!="     ? !equal(left, right)
                       : how == "in"     ? is_in(left, right)
                       : how == "not in" ? !is_in(left, right)
                       : how == "<"      ? compare(left, right) < 0
                       : how == "<="     ? compare(left, right) <= 0
                       : how == ">"      ? compare(left, right) > 0
                                         : compare(left, right) >= 0;
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace drivetrain::jinja
