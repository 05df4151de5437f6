// A template that was parsed.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jinja_value.h"

namespace drivetrain::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class ExpressionKind {
  constant,    // value
  name,        // name
  list,        // items
  tuple,       // items
  object,      // items: keys and values in turn
  attribute,   // items[0] . name
  item,        // items[0] [items[1]]
  slice,       // items[0] [items[1] : items[2] : items[3]], null where one is left out
  call,        // items[0] (arguments)
  filter,      // items[0] | name (arguments); items[0] is null in a filtered block
  test,        // items[0] is name (arguments)
  unary,       // name items[0]: "not", "-", "+"
  binary,      // items[0] name items[1]: "+", "and", ...
  comparison,  // items[0] names[0] items[1] names[1] items[2] ...
  conditional  // items[0] if items[1] else items[2], which may be null
};

struct Argument {
  std::string name;  // "": by place
  ExpressionPtr value;
};

struct Expression {
  ExpressionKind kind;
  int line = 0;
  std::string name = {};
  Var value = {};
  std::vector<ExpressionPtr> items = {};
  std::vector<std::string> names = {};
  std::vector<Argument> arguments = {};
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

enum class StatementKind {
  data,         // text
  output,       // value
  branch,       // if value: body; else: otherwise
  loop,         // for targets in value, if condition: body; without items: otherwise
  assign,       // targets = value
  assign_body,  // targets = what body writes, through the filters of value
  macro,        // text(parameters): body
  call,         // call of value, with body as its caller(parameters)
  filtered,     // what body writes, through the filters of value
  with,         // targets = values for body
  generation,   // body, which an assistant says
  break_loop,
  continue_loop
};

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null: none
};

// A name, or an attribute of a namespace.
struct Target {
  std::string name, attribute;
};

struct Statement {
  StatementKind kind;
  int line = 0;
  std::string text = {};
  ExpressionPtr value = {}, condition = {};
  std::vector<ExpressionPtr> values = {};
  std::vector<Target> targets = {};
  bool unpacks = false;  // targets are those of a tuple
  std::vector<Parameter> parameters = {};
  Body body = {}, otherwise = {};
};

struct Program {
  Body body;
  std::set<std::string> names;  // all variables, attributes and words of texts in it
  bool has_generation = false;
};

// Error(config) naming `where` and the line.
Program parse(const std::string& text, const std::string& where);

}  // namespace drivetrain::jinja
