#include <algorithm>

#include "base/printable.h"
#include "cli/usage_error.h"
#include "launch/hosts_request.h"

namespace drivetrain::program {

std::vector<std::string> shell_words(const std::string& text, const std::string& option) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  std::string word;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool next_counts = i + 1 < text.size() && (quote == 0 || text[i + 1] == '"' || text[i + 1] == '\\');
    if (c == '\\' && quote != '\'' && next_counts) {
      word += text[++i], in_word = true;
    } else if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c, in_word = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) words.push_back(word);
      word.clear(), in_word = false;
    } else {
      word += c, in_word = true;
    }
  }
  if (quote != 0)
    throw UsageError("launch: " + option + ": the quote " + quote + " in \"" + shown(text) + "\" does not end");
  if (in_word) words.push_back(word);
  return words;
}

std::string shell_quoted(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string("_-./:=,@%+").find(c) != std::string::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word)
    if (c == '\'')
      text += "'\\''";
    else
      text += c;
  return text + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

}  // namespace drivetrain::program
