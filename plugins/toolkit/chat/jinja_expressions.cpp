#include "jinja_expressions.h"

#include <cctype>

namespace drivetrain::jinja {
namespace {

constexpr int kDeepestExpression = 200;

// Of operators of one rank.
constexpr std::string_view kSums[] = {"+", "-"}, kProducts[] = {"*", "//", "/", "%"};

}  // namespace

Error ExpressionParser::wrong(const std::string& what) const {
  return fail(ErrorCode::config, where_, ", line ", here().line, ": the chat template does not parse: ", what);
}

std::string ExpressionParser::spelled(const Token& token) {
  switch (token.kind) {
    case TokenKind::variable_end:
      return "}}";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::end:
      return "the end";
    case TokenKind::text:
      return concat("the text \"", token.text, "\"");
    default:
      return concat('"', token.text, '"');
  }
}

bool ExpressionParser::take_sign(std::string_view text) { return is_sign(text) && (take(), true); }
bool ExpressionParser::take_name(std::string_view text) { return is_name(text) && (take(), true); }

void ExpressionParser::want_sign(std::string_view text) {
  if (!take_sign(text)) throw wrong(concat('"', text, "\" is wanted, found ", spelled(here())));
}

std::string ExpressionParser::want_name(const char* for_what) {
  if (here().kind != TokenKind::name) throw wrong(concat(for_what, " is wanted, found ", spelled(here())));
  names_.insert(here().text);
  return take().text;
}

ExpressionPtr ExpressionParser::made(ExpressionKind kind, int line, std::string name, ExpressionPtr a,
                                     ExpressionPtr b) {
  auto node = std::make_unique<Expression>(Expression{kind, line, std::move(name)});
  if (a) node->items.push_back(std::move(a));
  if (b) node->items.push_back(std::move(b));
  return node;
}

ExpressionPtr ExpressionParser::constant(Var value) {
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::constant, here().line});
  node->value = std::move(value);
  return node;
}

ExpressionPtr ExpressionParser::tuple(bool conditional) {
  const int line = here().line;
  const auto one = [&] { return conditional ? expression() : disjunction(); };
  ExpressionPtr first = one();
  if (!is_sign(",")) return first;
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::tuple, line});
  node->items.push_back(std::move(first));
  while (take_sign(",")) {
    if (here().kind == TokenKind::variable_end || here().kind == TokenKind::block_end || is_sign(")")) break;
    node->items.push_back(one());
  }
  return node;
}

ExpressionPtr ExpressionParser::conditional() {
  if (++depth_ > kDeepestExpression) throw wrong("expressions are nested too deeply");
  ExpressionPtr value = disjunction();
  while (is_name("if")) {
    auto node = std::make_unique<Expression>(Expression{ExpressionKind::conditional, take().line});
    node->items.push_back(std::move(value));
    node->items.push_back(disjunction());
    node->items.push_back(take_name("else") ? conditional() : nullptr);
    value = std::move(node);
  }
  --depth_;
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (is_name("or")) {
    const int line = take().line;
    left = made(ExpressionKind::binary, line, "or", std::move(left), conjunction());
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (is_name("and")) {
    const int line = take().line;
    left = made(ExpressionKind::binary, line, "and", std::move(left), negation());
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const int line = take().line;
  if (++depth_ > kDeepestExpression) throw wrong("expressions are nested too deeply");
  ExpressionPtr of = negation();
  --depth_;
  return made(ExpressionKind::unary, line, "not", std::move(of));
}

ExpressionPtr ExpressionParser::comparison() {
  ExpressionPtr first = sum();
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::comparison, here().line});
  for (;;) {
    std::string how;
    if (here().kind == TokenKind::sign && (here().text == "==" || here().text == "!=" || here().text == "<" ||
                                           here().text == "<=" || here().text == ">" || here().text == ">="))
      how = take().text;
    else if (take_name("in"))
      how = "in";
    else if (is_name("not") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].text == "in")
      take(), take(), how = "not in";
    else
      break;
    node->names.push_back(how);
    node->items.push_back(sum());
  }
  if (node->names.empty()) return first;
  node->items.insert(node->items.begin(), std::move(first));
  return node;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (is_sign(kSums[0]) || is_sign(kSums[1])) {
    const Token sign = take();
    left = made(ExpressionKind::binary, sign.line, sign.text, std::move(left), concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr left = product();
  while (is_sign("~")) {
    const int line = take().line;
    left = made(ExpressionKind::binary, line, "~", std::move(left), product());
  }
  return left;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  const auto is_product = [&] {
    for (const std::string_view sign : kProducts)
      if (is_sign(sign)) return true;
    return false;
  };
  while (is_product()) {
    const Token sign = take();
    left = made(ExpressionKind::binary, sign.line, sign.text, std::move(left), power());
  }
  return left;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary(true);
  while (is_sign("**")) {
    const int line = take().line;
    left = made(ExpressionKind::binary, line, "**", std::move(left), unary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  if (++depth_ > kDeepestExpression) throw wrong("expressions are nested too deeply");
  ExpressionPtr node;
  if (is_sign("-") || is_sign("+")) {
    const Token sign = take();
    node = made(ExpressionKind::unary, sign.line, sign.text, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  if (with_filters) node = filters(std::move(node));
  --depth_;
  return node;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr subject) {
  for (;;) {
    if (is_sign("|") || (!subject && here().kind == TokenKind::name)) {
      if (is_sign("|")) take();
      auto node = std::make_unique<Expression>(Expression{ExpressionKind::filter, here().line});
      node->name = want_name("the name of a filter");
      node->items.push_back(std::move(subject));
      if (is_sign("(")) arguments(node->arguments);
      subject = std::move(node);
    } else if (subject && is_name("is")) {
      subject = test(std::move(subject));
    } else if (subject && is_sign("(")) {
      subject = call(std::move(subject));
    } else {
      return subject;
    }
  }
}

ExpressionPtr ExpressionParser::test(ExpressionPtr subject) {
  const int line = take().line;
  const bool negated = take_name("not");
  auto node = std::make_unique<Expression>(Expression{ExpressionKind::test, line});
  node->name = want_name("the name of a test");
  node->items.push_back(std::move(subject));
  const TokenKind kind = here().kind;
  const bool one_follows = kind == TokenKind::text || kind == TokenKind::integer || kind == TokenKind::number ||
                           is_sign("[") || is_sign("{") ||
                           (kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_sign("(")) {
    arguments(node->arguments);
  } else if (one_follows) {
    if (is_name("is")) throw wrong("two tests follow each other");
    node->arguments.push_back({"", postfix(primary())});
  }
  return negated ? made(ExpressionKind::unary, line, "not", std::move(node)) : std::move(node);
}

}  // namespace drivetrain::jinja
