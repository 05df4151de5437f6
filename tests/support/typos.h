// Single typing errors of a word, and a fixed choice among many, for tests of what is suggested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::test {

// A letter left out, two swapped, one typed twice or with the key beside it, one replaced by the key beside it.
inline std::vector<std::string> typos_of(const std::string& word) {
  static const std::string rows[] = {"1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm"};
  const auto beside = [](char key) {
    for (const std::string& row : rows)
      if (const size_t at = row.find(key); at != std::string::npos) return row[at > 0 ? at - 1 : at + 1];
    return key == '_' ? '-' : 'x';
  };
  std::vector<std::string> typos;
  for (size_t i = 0; i < word.size(); ++i) {
    typos.push_back(word.substr(0, i) + word.substr(i + 1));
    if (i + 1 < word.size()) typos.push_back(word), std::swap(typos.back()[i], typos.back()[i + 1]);
    typos.push_back(word.substr(0, i) + word[i] + word.substr(i));
    typos.push_back(word.substr(0, i) + beside(word[i]) + word.substr(i));
    typos.push_back(word), typos.back()[i] = beside(word[i]);
  }
  std::sort(typos.begin(), typos.end());
  typos.erase(std::unique(typos.begin(), typos.end()), typos.end());
  std::erase(typos, word);
  std::erase(typos, "");
  return typos;
}

// Numbers that are the same everywhere (Knuth's MMIX).
class FixedNumbers {
 public:
  size_t below(size_t count) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state_ >> 33) % count);
  }

 private:
  uint64_t state_ = 1;
};

// What a message suggests: the x of `did you mean "x"?`, "" if it does not.
inline std::string suggested(const std::string& message) {
  const std::string words = "did you mean \"";
  const size_t at = message.find(words);
  if (at == std::string::npos) return "";
  const size_t begin = at + words.size();
  return message.substr(begin, message.find('"', begin) - begin);
}

}  // namespace drivetrain::test
