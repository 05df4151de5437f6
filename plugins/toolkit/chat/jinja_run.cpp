#include "jinja_run.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::jinja {
namespace {

constexpr int64_t kMostSteps = 5'000'000;
constexpr int kDeepestRun = 300;

// Puts a member back when it goes.
template <class T>
class Kept {
 public:
  explicit Kept(T& member) : member_(member), before_(member) {}
  Kept(T& member, T now) : Kept(member) { member_ = std::move(now); }
  ~Kept() { member_ = std::move(before_); }
  Kept(const Kept&) = delete;

 private:
  T& member_;
  T before_;
};

}  // namespace

Interpreter::Interpreter(std::map<std::string, Var, std::less<>> globals)
    : globals_(std::move(globals)), scope_(std::make_shared<Scope>()) {}

void Interpreter::run(const Program& program) {
  describes_loops_ = program.names.contains("loop");
  run(program.body);
}

void Interpreter::count_step() {
  if (++steps_ > kMostSteps) throw Problem{concat("the template has not ended after ", kMostSteps, " steps")};
}

void Interpreter::write(const std::string& piece) {
  if (out_->size() + piece.size() > kMostBytes) throw Problem{concat("the text is longer than ", kMostBytes, " bytes")};
  *out_ += piece;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  const Kept<int> depth(depth_, depth_ + 1);
  if (depth_ > kDeepestRun) throw Problem{"blocks and macros call each other too deeply"};
  for (const auto& statement : body)
    if (const Flow flow = run(*statement); flow != Flow::on) return flow;
  return Flow::on;
}

Interpreter::Flow Interpreter::in_scope(const Body& body) {
  const Kept<std::shared_ptr<Scope>> scope(scope_);
  scope_ = std::make_shared<Scope>(Scope{{}, scope_});
  return run(body);
}

std::string Interpreter::captured(const Body& body) {
  std::string piece;
  const Kept<std::string*> out(out_, &piece);
  in_scope(body);
  return piece;
}

Interpreter::Flow Interpreter::run(const Statement& s) {
  line_ = s.line;
  count_step();
  switch (s.kind) {
    case StatementKind::data:
      write(s.text);
      break;
    case StatementKind::output: {
      const Var value = evaluate(*s.value);
      line_ = s.line;
      write(str(value));
      break;
    }
    case StatementKind::branch:
      return run(truth(evaluate(*s.value)) ? s.body : s.otherwise);
    case StatementKind::loop:
      return loop(s);
    case StatementKind::assign:
      assign(s, evaluate(*s.value));
      break;
    case StatementKind::assign_body: {
      Var piece = captured(s.body);
      assign(s, s.value ? filtered(*s.value, std::move(piece)) : piece);
      break;
    }
    case StatementKind::macro:
      scope_->variables[s.text] = macro(s);
      break;
    case StatementKind::call: {
      Call arguments{{}, {}, *this};
      const Var callee = evaluate(*s.value->items[0]);
      add_arguments(s.value->arguments, arguments);
      arguments.named.emplace_back("caller", macro(s));
      line_ = s.line;
      write(str(call(callee, arguments)));
      break;
    }
    case StatementKind::filtered:
      write(str(filtered(*s.value, captured(s.body))));
      break;
    case StatementKind::with: {
      const auto inner = std::make_shared<Scope>(Scope{{}, scope_});
      for (size_t i = 0; i < s.targets.size(); ++i) inner->variables[s.targets[i].name] = evaluate(*s.values[i]);
      const Kept<std::shared_ptr<Scope>> scope(scope_, inner);
      return run(s.body);
    }
    case StatementKind::generation: {
      const size_t begin = text.size();
      in_scope(s.body);
      answers.emplace_back(begin, text.size());
      break;
    }
    case StatementKind::break_loop:
      return Flow::break_loop;
    case StatementKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::loop(const Statement& s) {
  std::vector<Var> items = iterate(evaluate(*s.value));
  const Kept<std::shared_ptr<Scope>> scope(scope_);
  const auto inner = [&] { return std::make_shared<Scope>(Scope{{}, nullptr}); };
  const std::shared_ptr<Scope> outer = scope_;
  const auto enter = [&](const Var& item) {
    scope_ = inner();
    scope_->outer = outer;
    assign(s, item);
  };
  if (s.condition)
    std::erase_if(items, [&](const Var& item) {
      enter(item);
      return !truth(evaluate(*s.condition));
    });
  for (size_t i = 0; i < items.size(); ++i) {
    count_step();
    enter(items[i]);
    if (describes_loops_) describe_loop(items, i);
    if (run(s.body) == Flow::break_loop) break;
  }
  scope_ = outer;
  if (items.empty()) return in_scope(s.otherwise);
  return Flow::on;
}

void Interpreter::describe_loop(const std::vector<Var>& items, size_t at) {
  const auto i = static_cast<int64_t>(at), length = static_cast<int64_t>(items.size());
  Dict loop;
  loop.members = {{"index", i + 1},         {"index0", i},
                  {"revindex", length - i}, {"revindex0", length - i - 1},
                  {"first", i == 0},        {"last", i + 1 == length},
                  {"length", length}};
  if (at > 0) loop.members.emplace_back("previtem", items[at - 1]);
  if (at + 1 < items.size()) loop.members.emplace_back("nextitem", items[at + 1]);
  loop.members.emplace_back("cycle", Callable{"cycle", [at](Call& call) -> Var {
                                                if (call.args.empty()) throw Problem{"cycle has no arguments"};
                                                return call.args[at % call.args.size()];
                                              }});
  scope_->variables["loop"] = std::move(loop);
}

void Interpreter::assign(const Statement& s, Var value) {
  if (!s.unpacks) return assign(s.targets.front(), std::move(value));
  const std::vector<Var> parts = iterate(value);
  if (parts.size() != s.targets.size())
    throw Problem{concat(parts.size(), " values are assigned to ", s.targets.size(), " names")};
  for (size_t i = 0; i < parts.size(); ++i) assign(s.targets[i], parts[i]);
}

void Interpreter::assign(const Target& target, Var value) {
  if (target.attribute.empty()) return void(scope_->variables[target.name] = std::move(value));
  const Var of = name(Expression{ExpressionKind::name, line_, target.name});
  if (!of.name_space())
    throw Problem{concat("\"", target.name, "\" is ", of.type_name(), "; attributes are set of a namespace only")};
  of.name_space()->members.set(target.attribute, std::move(value));
}

Var Interpreter::macro(const Statement& s) {
  return Callable{s.text.empty() ? "caller" : s.text,
                  [this, &s, outer = std::weak_ptr<Scope>(scope_)](Call& call) -> Var {
                    const std::shared_ptr<Scope> scope = outer.lock();
                    if (!scope) throw Problem{concat("the macro \"", s.text, "\" is called where it is not known")};
                    return call_macro(s, scope, call);
                  }};
}

Var Interpreter::call_macro(const Statement& s, const std::shared_ptr<Scope>& outer, const Call& arguments) {
  const Kept<std::shared_ptr<Scope>> scope(scope_, std::make_shared<Scope>(Scope{{}, outer}));
  if (arguments.args.size() > s.parameters.size())
    throw Problem{concat("the macro \"", s.text, "\" takes ", s.parameters.size(), " arguments, ",
                         arguments.args.size(), " are given")};
  for (const auto& [key, value] : arguments.named) {
    const bool known = key == "caller" || std::any_of(s.parameters.begin(), s.parameters.end(),
                                                      [&](const Parameter& p) { return p.name == key; });
    if (!known) throw Problem{concat("the macro \"", s.text, "\" has no argument \"", key, "\"")};
    if (key == "caller") scope_->variables["caller"] = value;
  }
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    const Parameter& p = s.parameters[i];
    const Var* given = arguments.find(i, p.name);
    scope_->variables[p.name] = given         ? *given
                                : p.otherwise ? evaluate(*p.otherwise)
                                              : Var(Undefined{concat("the argument \"", p.name, "\" is not given")});
  }
  return captured(s.body);
}

Var Interpreter::call(const Var& callee, Call& arguments) {
  count_step();
  if (const auto* u = callee.get<Undefined>()) throw Problem{concat("the template calls what is not there: ", u->what)};
  const auto* function = callee.get<Callable>();
  if (!function) throw Problem{concat("the template calls ", callee.type_name(), ", which is no function")};
  return function->call(arguments);
}

}  // namespace drivetrain::jinja
