// A template as tokens. Blanks and line ends around blocks are those of trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drivetrain::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  text,
  integer,
  number,
  sign,
  end
};

struct Token {
  TokenKind kind;
  std::string text;  // of a text: what it means; of data: what is written
  int line;
};

// Error(config) naming `where` and the line.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

}  // namespace drivetrain::jinja
