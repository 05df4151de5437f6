// Where in a JSON text a token begins, in lines and columns: RapidJSON's reader tells where one ended at best.
// A text, no state besides; one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

namespace drivetrain {

class JsonCursor {
 public:
  explicit JsonCursor(const std::string& text, size_t start) : text_(text), offset_(start) {}

  int line() const { return line_; }
  int column() const { return column_; }
  size_t offset() const { return offset_; }

  void move_to(size_t offset) {
    for (; offset_ < std::min(offset, text_.size()); ++offset_) {
      const unsigned char c = static_cast<unsigned char>(text_[offset_]);
      if (c == '\n')
        ++line_, column_ = 1;
      else if ((c & 0xC0) != 0x80)
        ++column_;  // columns are characters, not bytes
    }
  }

  // Past white space, comments and separators, to the first character of the next token.
  void skip_to_token() {
    while (offset_ < text_.size()) {
      if (std::strchr(" \t\r\n,:", text_[offset_]) && text_[offset_])
        move_to(offset_ + 1);
      else if (text_.compare(offset_, 2, "//") == 0)
        move_to(text_.find('\n', offset_));
      else if (text_.compare(offset_, 2, "/*") == 0)
        move_to(end_of_comment());
      else
        return;
    }
  }

  // Past the token that begins here; returns its text.
  std::string_view take_token() {
    const size_t begin = offset_;
    size_t end = begin + 1;
    if (text_[begin] == '"') {
      while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
      ++end;
    } else if (!std::strchr("{}[]", text_[begin])) {
      end = std::min(text_.find_first_of(" \t\r\n,:]}/", begin), text_.size());
    }
    move_to(end);
    return std::string_view(text_).substr(begin, end - begin);
  }

 private:
  size_t end_of_comment() const {
    const size_t end = text_.find("*/", offset_ + 2);
    return end == std::string::npos ? text_.size() : end + 2;
  }

  const std::string& text_;
  size_t offset_;
  int line_ = 1, column_ = 1;
};

}  // namespace drivetrain
