#include <drivetrain/toolkit/chat/template_text.h>

#include <algorithm>
#include <optional>

namespace drivetrain {
namespace {

constexpr size_t kLongestMark = 64;

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// [INST] and the like, as Mistral's control tokens are spelled, front to back.
std::vector<std::string_view> bracket_words(std::string_view text) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_/";
  std::vector<std::string_view> words;
  for (size_t begin = text.find('['); begin != std::string_view::npos; begin = text.find('[', begin + 1)) {
    const size_t end = text.find_first_not_of(kLetters, begin + 1);
    if (end != std::string_view::npos && text[end] == ']' && end > begin + 1)
      words.push_back(text.substr(begin, end + 1 - begin));
  }
  return words;
}

// Whether no text has this token: it decodes to nothing, which neither words of the vocabulary do nor bytes (<0x0A>).
bool is_hidden(const Tokenizer& tokenizer, int32_t id) {
  std::string written;
  tokenizer.decode({&id, 1}, written);
  return written.empty();
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

std::vector<int32_t> encode_template_text(const Tokenizer& tokenizer, std::string_view text, UnknownMarks& unknown,
                                          bool* hidden) {
  std::vector<std::string_view> marks = marks_of(text);
  const std::vector<std::string_view> words = bracket_words(text);
  marks.insert(marks.end(), words.begin(), words.end());
  std::sort(marks.begin(), marks.end(), [](auto a, auto b) { return a.data() < b.data(); });
  std::vector<int32_t> ids;
  size_t done = 0;
  const auto add_up_to = [&](size_t end) {
    if (end > done) tokenizer.encode(text.substr(done, end - done), ids);
  };
  for (const std::string_view mark : marks) {
    const std::optional<int32_t> id = tokenizer.id_of(mark);
    if (!id && mark[0] == '[') continue;  // words in brackets are texts, but for those that are tokens
    const std::vector<int32_t> found = ids_of(tokenizer, mark);
    if (id && std::find(found.begin(), found.end(), *id) != found.end()) continue;  // the tokenizer finds it
    const auto begin = static_cast<size_t>(mark.data() - text.data());
    if (id && begin >= done && is_hidden(tokenizer, *id)) {
      add_up_to(begin);
      ids.push_back(*id);
      done = begin + mark.size();
      if (hidden) *hidden = true;
    } else if (found.size() > 1 && mark[0] == '<') {
      unknown[std::string(mark)] = static_cast<int64_t>(found.size());
    }
  }
  add_up_to(text.size());
  return ids;
}

}  // namespace drivetrain
