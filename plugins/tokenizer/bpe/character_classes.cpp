#include "character_classes.h"

#include <algorithm>
#include <bit>
#include <map>

#include <drivetrain/error.h>

#include "unicode.h"

namespace drivetrain::bpe {
namespace {

constexpr size_t kMostClasses = 4096;

// By code point: a bit where one of the sets begins or ends.
std::vector<uint64_t> borders_of(const std::vector<const CharacterSet*>& sets) {
  std::vector<uint64_t> borders(kCodePoints / 64);
  borders[0] = 1;
  for (const CharacterSet* set : sets) {
    uint64_t last = set->words()[0] & 1;
    for (size_t i = 0; i < borders.size(); ++i) {
      const uint64_t word = set->words()[i];
      borders[i] |= word ^ (word << 1 | last);
      last = word >> 63;
    }
  }
  return borders;
}

}  // namespace

CharacterClasses::CharacterClasses(const std::vector<const CharacterSet*>& sets, const std::string& name) {
  std::map<std::vector<bool>, uint16_t> classes;
  const auto class_at = [&](uint32_t c) {
    std::vector<bool> in(sets.size());
    for (size_t i = 0; i < sets.size(); ++i) in[i] = sets[i]->has(c);
    const auto [found, fresh] = classes.emplace(std::move(in), static_cast<uint16_t>(classes.size()));
    if (fresh) members_.push_back(found->first);
    if (classes.size() > kMostClasses)
      throw fail(ErrorCode::config, name, " tells more than ", kMostClasses,
                 " kinds of characters apart; take one with ", "fewer sets of characters");
    return found->second;
  };
  std::vector<uint16_t> all(kCodePoints);
  uint32_t begin = 0;
  uint16_t now = 0;
  const auto end_at = [&](uint32_t c) { std::fill(all.begin() + begin, all.begin() + c, now); };
  const std::vector<uint64_t> borders = borders_of(sets);
  for (uint32_t i = 0; i < borders.size(); ++i) {
    for (uint64_t left = borders[i]; left != 0; left &= left - 1) {
      const uint32_t c = 64 * i + static_cast<uint32_t>(std::countr_zero(left));
      end_at(c);
      begin = c, now = class_at(c);
    }
  }
  end_at(kCodePoints);
  std::map<std::vector<uint16_t>, uint16_t> pages;
  for (auto page = all.begin(); page != all.end(); page += kPage) {
    if (page != all.begin() && std::equal(page, page + kPage, page - kPage)) {
      pages_of_.push_back(pages_of_.back());
      continue;
    }
    const auto [found, fresh] =
        pages.emplace(std::vector<uint16_t>(page, page + kPage), static_cast<uint16_t>(pages.size()));
    if (fresh) pages_.insert(pages_.end(), page, page + kPage);
    pages_of_.push_back(found->second);
  }
  std::copy_n(all.begin(), ascii_.size(), ascii_.begin());
}

}  // namespace drivetrain::bpe
