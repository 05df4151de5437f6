// The parts of expressions that are no operators: names, constants, lists, calls.
#include <cerrno>
#include <cstdlib>

#include "jinja_expressions.h"

namespace drivetrain::jinja {

// The words of a text, for Program::names: a template may ask for a key by a text.
void ExpressionParser::note_words(const std::string& text) { names_.insert(text); }

ExpressionPtr ExpressionParser::text() {
  std::string whole;
  while (here().kind == TokenKind::text) whole += take().text;  // Jinja joins texts that follow each other
  note_words(whole);
  return constant(whole);
}

ExpressionPtr ExpressionParser::number() {
  const Token token = take();
  if (token.kind == TokenKind::number) return constant(std::strtod(token.text.c_str(), nullptr));
  errno = 0;
  const long long value = std::strtoll(token.text.c_str(), nullptr, 10);
  if (errno != 0) throw wrong(concat("the number ", token.text, " is too large"));
  return constant(static_cast<int64_t>(value));
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = here();
  if (token.kind == TokenKind::text) return text();
  if (token.kind == TokenKind::integer || token.kind == TokenKind::number) return number();
  if (token.kind == TokenKind::name) {
    const Token name = take();
    if (name.text == "true" || name.text == "True") return constant(true);
    if (name.text == "false" || name.text == "False") return constant(false);
    if (name.text == "none" || name.text == "None") return constant(Var());
    names_.insert(name.text);
    return made(ExpressionKind::name, name.line, name.text);
  }
  if (is_sign("[")) return list();
  if (is_sign("{")) return object();
  if (!is_sign("(")) throw wrong(concat("a value is wanted, found ", spelled(token)));
  const int line = take().line;
  if (take_sign(")")) return made(ExpressionKind::tuple, line, "");
  ExpressionPtr inner = tuple();
  want_sign(")");
  return inner;
}

ExpressionPtr ExpressionParser::list() {
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::list, take().line});
  while (!is_sign("]")) {
    node->items.push_back(expression());
    if (!take_sign(",")) break;
  }
  want_sign("]");
  return node;
}

ExpressionPtr ExpressionParser::object() {
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::object, take().line});
  while (!is_sign("}")) {
    node->items.push_back(expression());
    want_sign(":");
    node->items.push_back(expression());
    if (!take_sign(",")) break;
  }
  want_sign("}");
  return node;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr subject) {
  for (;;) {
    if (is_sign(".") || is_sign("["))
      subject = subscript(std::move(subject));
    else if (is_sign("("))
      subject = call(std::move(subject));
    else
      return subject;
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr subject) {
  const Token sign = take();
  if (sign.text == ".") {
    if (here().kind == TokenKind::integer)
      return made(ExpressionKind::item, sign.line, "", std::move(subject), number());
    std::string name = want_name("an attribute");
    return made(ExpressionKind::attribute, sign.line, std::move(name), std::move(subject));
  }
  ExpressionPtr begin = is_sign(":") ? nullptr : expression();
  if (!is_sign(":")) {
    if (is_sign(",")) throw wrong("an item of several numbers is not supported");
    want_sign("]");
    return made(ExpressionKind::item, sign.line, "", std::move(subject), std::move(begin));
  }
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::slice, sign.line});
  node->items.push_back(std::move(subject));
  node->items.push_back(std::move(begin));
  for (int part = 0; part < 2; ++part)
    node->items.push_back(take_sign(":") && !is_sign(":") && !is_sign("]") ? expression() : nullptr);
  want_sign("]");
  return node;
}

ExpressionPtr ExpressionParser::call(ExpressionPtr subject) {
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::call, here().line});
  node->items.push_back(std::move(subject));
  arguments(node->arguments);
  return node;
}

void ExpressionParser::arguments(std::vector<Argument>& to) {
  want_sign("(");
  while (!is_sign(")")) {
    if (is_sign("*") || is_sign("**")) throw wrong("arguments by * and ** are not supported");
    std::string name;
    if (here().kind == TokenKind::name && tokens_[at_ + 1].kind == TokenKind::sign && tokens_[at_ + 1].text == "=") {
      name = want_name("an argument");
      take();
    } else if (!to.empty() && !to.back().name.empty()) {
      throw wrong("an argument without a name follows one with a name");
    }
    ExpressionPtr value = expression();
    to.push_back({std::move(name), std::move(value)});
    if (!take_sign(",")) break;
  }
  want_sign(")");
}

}  // namespace drivetrain::jinja
