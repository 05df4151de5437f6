#include "token_table.h"

#include <algorithm>
#include <bit>

namespace drivetrain::bpe {

TokenTable::TokenTable(const TokenIds& ids) : slots_(std::bit_ceil(2 * ids.size() + 2)) {
  for (const auto& [text, id] : ids) {
    const size_t hash = TextHash()(text);
    size_t at = place(hash);
    while (slots_[at].id >= 0) at = place(at + 1);
    slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(texts_.size()),
                  static_cast<uint32_t>(text.size()), id};
    texts_ += text;
    longest_ = std::max(longest_, text.size());
    highest_ = std::max(highest_, id);
  }
}

int32_t TokenTable::find(std::string_view text) const {
  if (text.size() > longest_) return -1;
  const size_t hash = TextHash()(text);
  for (size_t at = place(hash);; at = place(at + 1)) {
    const Slot& slot = slots_[at];
    if (slot.id < 0) return -1;
    if (slot.hash == static_cast<uint32_t>(hash >> 32) && slot.length == text.size() &&
        std::string_view(texts_).substr(slot.begin, slot.length) == text)
      return slot.id;
  }
}

}  // namespace drivetrain::bpe
