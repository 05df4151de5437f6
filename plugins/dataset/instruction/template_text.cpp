#include "template_text.h"

#include <optional>

namespace drivetrain::instruction {
namespace {

constexpr size_t kLongestMark = 64;

std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

}  // namespace

std::vector<std::string_view> marks_of(std::string_view text) {
  std::vector<std::string_view> marks;
  for (size_t begin = text.find('<'); begin != std::string_view::npos; begin = text.find('<', begin + 1)) {
    const size_t end = text.find_first_of("<> \t\r\n", begin + 1);
    if (end == std::string_view::npos || text[end] != '>' || end < begin + 2 || end - begin > kLongestMark) continue;
    marks.push_back(text.substr(begin, end + 1 - begin));
    begin = end;
  }
  return marks;
}

std::vector<int32_t> encode_template_text(const Tokenizer& tokenizer, std::string_view text, UnknownMarks& unknown) {
  std::vector<int32_t> ids;
  size_t done = 0;
  const auto add_up_to = [&](size_t end) {
    if (end > done) tokenizer.encode(text.substr(done, end - done), ids);
  };
  for (const std::string_view mark : marks_of(text)) {
    const std::optional<int32_t> id = tokenizer.id_of(mark);
    const std::vector<int32_t> found = encoded(tokenizer, mark);
    if (!id && found.size() > 1) unknown[std::string(mark)] = static_cast<int64_t>(found.size());
    if (!id || found == std::vector{*id}) continue;  // the tokenizer itself finds what there is to find
    const auto begin = static_cast<size_t>(mark.data() - text.data());
    add_up_to(begin);
    ids.push_back(*id);
    done = begin + mark.size();
  }
  add_up_to(text.size());
  return ids;
}

}  // namespace drivetrain::instruction
