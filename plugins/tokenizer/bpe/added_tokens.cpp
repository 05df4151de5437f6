#include "added_tokens.h"

#include <algorithm>

#include <drivetrain/toolkit/text/utf8.h>
#include "unicode.h"

namespace drivetrain::bpe {
namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(code_point(text, previous_character(text, text.size())).value);
}
bool begins_with_word(std::string_view text) { return !text.empty() && is_word(code_point(text, 0).value); }

size_t begin_of_last_spaces(std::string_view text) {
  size_t at = text.size();
  while (at > 0 && is_space(code_point(text, previous_character(text, at)).value)) at = previous_character(text, at);
  return at;
}
size_t first_spaces(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_space(code_point(text, at).value)) at += code_point(text, at).length;
  return at;
}

}  // namespace

TokenFinder::TokenFinder(std::vector<std::pair<std::string, const AddedToken*>> tokens) : nodes_(1) {
  for (const auto& [content, token] : tokens) {
    uint32_t node = 0;
    for (const char c : content) {
      const auto byte = static_cast<unsigned char>(c);
      uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back();
        auto& list = nodes_[node].next;
        list.insert(std::lower_bound(list.begin(), list.end(), std::pair{byte, uint32_t{0}}), {byte, next});
      }
      node = next;
    }
    nodes_[node].token = token;
    first_[static_cast<unsigned char>(content[0])] = true;
  }
  if (nodes_[0].next.size() == 1) only_first_ = static_cast<char>(nodes_[0].next[0].first);
}

uint32_t TokenFinder::child(uint32_t node, unsigned char byte) const {
  const auto& list = nodes_[node].next;
  if (list.size() == 1) return list[0].first == byte ? list[0].second : 0;
  const auto at = std::lower_bound(list.begin(), list.end(), std::pair{byte, uint32_t{0}});
  return at != list.end() && at->first == byte ? at->second : 0;
}

TokenFinder::Found TokenFinder::find(std::string_view text, size_t from) const {
  for (; from < text.size(); ++from) {
    if (only_first_) from = std::min(text.find(*only_first_, from), text.size() - 1);
    if (!first_[static_cast<unsigned char>(text[from])]) continue;
    Found longest{from, from, nullptr};
    uint32_t node = 0;
    for (size_t at = from; at < text.size(); ++at) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) break;
      if (nodes_[node].token) longest = {from, at + 1, nodes_[node].token};
    }
    if (longest.token) return longest;
  }
  return {from, from, nullptr};
}

// The order of the steps is that of Hugging Face's AddedVocabulary::find_matches.
void TokenFinder::split(std::string_view text, std::vector<Part>& parts) const {
  parts.clear();
  size_t done = 0;
  if (nodes_.size() > 1) {
    for (Found found = find(text, 0); found.token; found = find(text, found.end)) {
      size_t begin = found.begin, end = found.end;
      if (found.token->single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
        continue;
      if (found.token->lstrip) begin = std::max(begin_of_last_spaces(text.substr(0, begin)), done);
      if (found.token->rstrip) end += first_spaces(text.substr(end));
      if (done < begin) parts.push_back({done, begin, nullptr});
      parts.push_back({begin, end, found.token});
      done = end;
    }
  }
  if (done < text.size()) parts.push_back({done, text.size(), nullptr});
}

}  // namespace drivetrain::bpe
