// The parser of statements.
#include <algorithm>
#include <initializer_list>

#include "jinja_expressions.h"

namespace drivetrain::jinja {
namespace {

constexpr int kDeepestBlock = 200;

// Blocks that Jinja has and chat templates have no use for.
constexpr std::string_view kOthers[] = {"block",      "extends", "include", "import", "from",
                                        "autoescape", "do",      "trans",   "debug"};

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Program program() {
    Program made;
    made.body = body({});
    made.names = std::move(names_);
    made.has_generation = has_generation_;
    return made;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Statements up to a block of one of these names, whose name is taken.
  Body body(Ends ends) {
    Body statements;
    if (++depth_ > kDeepestBlock) throw wrong("blocks are nested too deeply");
    for (;;) {
      const Token& token = take();
      if (token.kind == TokenKind::end) {
        if (ends.size() > 0) throw wrong(concat("{% ", *(ends.end() - 1), " %} is missing"));
        break;
      }
      if (token.kind == TokenKind::data) {
        add(statements, StatementKind::data, token.line)->text = token.text;
      } else if (token.kind == TokenKind::variable_begin) {
        add(statements, StatementKind::output, token.line)->value = tuple();
        end_of(TokenKind::variable_end);
      } else if (std::find(ends.begin(), ends.end(), here().text) != ends.end()) {
        break;
      } else {
        block(statements);
      }
    }
    --depth_;
    return statements;
  }
  static Statement* add(Body& to, StatementKind kind, int line) {
    auto made = std::make_unique<Statement>(Statement{kind, line});
    Statement* const pointer = made.get();
    to.push_back(std::move(made));
    return pointer;
  }
  void end_of(TokenKind kind) {
    if (here().kind != kind)
      throw wrong(concat(kind == TokenKind::block_end ? "%}" : "}}", " is wanted, found ", spelled(here())));
    take();
  }
  void end_of_block() { end_of(TokenKind::block_end); }
  // A body whose end is "end" and the name of its block.
  Body body_of(std::string_view end) {
    end_of_block();
    Body statements = body({end});
    take(), end_of_block();
    return statements;
  }

  void block(Body& to) {
    const int line = here().line;
    if (here().kind != TokenKind::name) throw wrong(concat("a block is wanted, found ", spelled(here())));
    const std::string name = take().text;
    if (name == "if") return branch(*add(to, StatementKind::branch, line));
    if (name == "for") return loop(*add(to, StatementKind::loop, line));
    if (name == "set") return assign(*add(to, StatementKind::assign, line));
    if (name == "macro") return macro(*add(to, StatementKind::macro, line));
    if (name == "call") return call_block(*add(to, StatementKind::call, line));
    if (name == "filter") return filtered(*add(to, StatementKind::filtered, line));
    if (name == "with") return with(*add(to, StatementKind::with, line));
    if (name == "generation") return generation(*add(to, StatementKind::generation, line));
    if (name == "break" || name == "continue") {
      if (loops_ == 0) throw wrong(concat("{% ", name, " %} stands in no loop"));
      add(to, name == "break" ? StatementKind::break_loop : StatementKind::continue_loop, line);
      return end_of_block();
    }
    if (std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers))
      throw wrong(concat("{% ", name, " %} is not supported in chat templates"));
    throw wrong(concat("{% ", name, " %} is no block that there is, or stands where its begin is missing"));
  }

  void branch(Statement& s) {
    s.value = tuple();
    end_of_block();
    s.body = body({"elif", "else", "endif"});
    const int line = here().line;
    if (take_name("elif")) return branch(*add(s.otherwise, StatementKind::branch, line));
    if (take_name("else")) end_of_block(), s.otherwise = body({"endif"});
    take(), end_of_block();
  }

  void loop(Statement& s) {
    targets(s, false);
    if (!take_name("in")) throw wrong(concat("\"in\" is wanted, found ", spelled(here())));
    s.value = tuple(false);
    if (take_name("if")) s.condition = expression();
    if (is_name("recursive")) throw wrong("{% for ... recursive %} is not supported in chat templates");
    end_of_block();
    ++loops_;
    s.body = body({"else", "endfor"});
    --loops_;
    if (take_name("else")) end_of_block(), s.otherwise = body({"endfor"});
    take(), end_of_block();
  }

  void targets(Statement& s, bool attributes) {
    const bool closes = take_sign("(");
    do {
      if (here().kind != TokenKind::name) break;
      Target target{want_name("a name"), ""};
      if (attributes && take_sign(".")) target.attribute = want_name("an attribute");
      s.targets.push_back(std::move(target));
      s.unpacks = s.unpacks || is_sign(",");
    } while (take_sign(","));
    if (s.targets.empty()) throw wrong(concat("a name is wanted, found ", spelled(here())));
    if (closes) want_sign(")");
  }

  void assign(Statement& s) {
    targets(s, true);
    if (take_sign("=")) {
      s.value = tuple();
      return end_of_block();
    }
    s.kind = StatementKind::assign_body;
    s.value = filters(nullptr_filter());
    s.body = captured("endset");
  }
  // {% set x | trim %} begins with "|"; a name there would be no filter.
  ExpressionPtr nullptr_filter() {
    if (here().kind != TokenKind::block_end && !is_sign("|"))
      throw wrong(concat("\"=\" is wanted, found ", spelled(here())));
    return nullptr;
  }
  // A body whose text goes elsewhere: the place of {% generation %} in the conversation would not be known.
  Body captured(std::string_view end) {
    const int loops = loops_;
    loops_ = 0, ++captures_;
    Body statements = body_of(end);
    loops_ = loops, --captures_;
    return statements;
  }

  void parameters(Statement& s) {
    want_sign("(");
    while (!is_sign(")")) {
      std::string name = want_name("a parameter");
      ExpressionPtr otherwise = take_sign("=") ? expression() : nullptr;
      s.parameters.push_back({std::move(name), std::move(otherwise)});
      if (!take_sign(",")) break;
    }
    want_sign(")");
  }
  void macro(Statement& s) {
    s.text = want_name("the name of the macro");
    parameters(s);
    s.body = captured("endmacro");
  }
  void call_block(Statement& s) {
    if (is_sign("(")) parameters(s);
    s.value = expression();
    if (s.value->kind != ExpressionKind::call) throw wrong("{% call %} wants a call");
    s.body = captured("endcall");
  }
  void filtered(Statement& s) {
    s.value = filters(nullptr);
    s.body = captured("endfilter");
  }
  void with(Statement& s) {
    while (here().kind == TokenKind::name) {
      s.targets.push_back({want_name("a name"), ""});
      want_sign("=");
      s.values.push_back(expression());
      if (!take_sign(",")) break;
    }
    s.body = body_of("endwith");
  }
  void generation(Statement& s) {
    if (captures_ > 0)
      throw wrong("{% generation %} stands in a macro or in a block whose text is kept, where its place is not known");
    has_generation_ = true;
    const int loops = loops_;
    loops_ = 0;
    s.body = body_of("endgeneration");
    loops_ = loops;
  }

  int depth_ = 0, loops_ = 0, captures_ = 0;
  bool has_generation_ = false;
};

}  // namespace

Program parse(const std::string& text, const std::string& where) {
  return Parser(tokenize(text, where), where).program();
}

}  // namespace drivetrain::jinja
