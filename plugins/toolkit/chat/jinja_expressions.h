// The parser of expressions, by descent; the order of operators is Jinja's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/error.h>

#include "jinja_lexer.h"
#include "jinja_syntax.h"

namespace drivetrain::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, const std::string& where) : where_(where), tokens_(std::move(tokens)) {}

 protected:
  // "a", or "a, b" as a tuple. Without `conditional` an "if" behind it is not part of it, as in a loop.
  ExpressionPtr tuple(bool conditional = true);
  ExpressionPtr expression() { return conditional(); }
  // Filters alone, as in {% set x | trim %}; `subject` is null.
  ExpressionPtr filters(ExpressionPtr subject);

  const Token& here() const { return tokens_[at_]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind, std::string_view text) const { return here().kind == kind && here().text == text; }
  bool is_sign(std::string_view text) const { return is(TokenKind::sign, text); }
  bool is_name(std::string_view text) const { return is(TokenKind::name, text); }
  bool take_sign(std::string_view text);
  bool take_name(std::string_view text);
  void want_sign(std::string_view text);
  std::string want_name(const char* for_what);
  Error wrong(const std::string& what) const;
  static std::string spelled(const Token& token);

  const std::string& where_;
  std::set<std::string> names_;

 private:
  static ExpressionPtr made(ExpressionKind kind, int line, std::string name, ExpressionPtr a = {},
                            ExpressionPtr b = {});
  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr subject);
  ExpressionPtr subscript(ExpressionPtr subject);
  ExpressionPtr call(ExpressionPtr subject);
  ExpressionPtr test(ExpressionPtr subject);
  ExpressionPtr constant(Var value);
  ExpressionPtr text();
  ExpressionPtr number();
  ExpressionPtr list();
  ExpressionPtr object();
  void arguments(std::vector<Argument>& to);
  void note_words(const std::string& text);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace drivetrain::jinja
