// Pieces of text that messages all over the product are made of. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include <drivetrain/error.h>

namespace drivetrain {

// printf's text of these arguments, of up to 511 bytes: formatted("%.1f %%", 100 * share).
template <class... Args>
std::string formatted(const char* form, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, form, args...);
  return text;
}

// "a, b, c" of whatever can be streamed.
template <class List>
std::string join(const List& list, const std::string& separator = ", ") {
  std::string text;
  for (const auto& one : list) text += concat(text.empty() ? "" : separator, one);
  return text;
}

// "1, 2, 3, 6": what divides n, or the first dozen of them.
inline std::string divisors_text(int64_t n) {
  constexpr int kMost = 12;
  std::string text;
  int found = 0;
  for (int64_t d = 1; d <= n && found <= kMost; ++d) {
    if (n % d != 0) continue;
    text += found == kMost ? ", ..." : concat(text.empty() ? "" : ", ", d);
    ++found;
  }
  return text;
}

inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace drivetrain
