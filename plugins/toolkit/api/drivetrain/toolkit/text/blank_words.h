// Words of texts in which ▁ stands for a blank, as SentencePiece writes them. Any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace drivetrain {

inline constexpr std::string_view kBlank = "\u2581";  // ▁

// Where the next word behind `from` begins: at a ▁ behind another character, or at every ▁; the end if there is none.
inline size_t next_word(std::string_view text, size_t from, bool every) {
  for (size_t at = text.find(kBlank, from); at != std::string_view::npos; at = text.find(kBlank, at + kBlank.size())) {
    if (at == from) continue;
    const bool behind_another = at < kBlank.size() || text.substr(at - kBlank.size(), kBlank.size()) != kBlank;
    if (every || behind_another) return at;
  }
  return text.size();
}

// Whether no ▁ is behind another character: merges that make such tokens alone never join words.
inline bool is_one_word(std::string_view token) { return next_word(token, 0, false) == token.size(); }

}  // namespace drivetrain
