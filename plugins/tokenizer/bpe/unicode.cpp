#include "unicode.h"

#include <vector>

namespace drivetrain::bpe {
namespace {

constexpr std::string_view kRuns =
#include "unicode_table.inc"
    ;
// As in make_unicode_table.py: the letter at the index of a category, and those of code points that NFC may change.
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ#$%&", kLettersNfc = "abcdefghijklmnopqrstuvwxyz'()*";
constexpr std::string_view kNames = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
constexpr uint8_t kNfcFlag = 0x20;

// By code point: index of its category, and the flag.
std::vector<uint8_t> unpack() {
  std::vector<uint8_t> table;
  table.reserve(kCodePoints);
  for (size_t at = 0; at < kRuns.size();) {
    const char letter = kRuns[at++];
    size_t count = 0;
    while (at < kRuns.size() && kRuns[at] >= '0' && kRuns[at] <= '9')
      count = count * 10 + static_cast<size_t>(kRuns[at++] - '0');
    size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) value = kLettersNfc.find(letter) | kNfcFlag;
    table.insert(table.end(), count == 0 ? 1 : count, static_cast<uint8_t>(value));
  }
  return table;
}

const std::vector<uint8_t>& table() {
  static const std::vector<uint8_t> unpacked = unpack();
  return unpacked;
}

}  // namespace

CategorySet category(uint32_t code_point) { return CategorySet{1} << (table()[code_point] & 0x1F); }

std::optional<CategorySet> categories_named(std::string_view name) {
  CategorySet set = 0;
  for (size_t i = 0; i < kNames.size() / 2; ++i)
    if (!name.empty() && kNames.substr(2 * i, 2).starts_with(name)) set |= CategorySet{1} << i;
  return set == 0 ? std::nullopt : std::optional(set);
}

bool is_space(uint32_t c) {
  static const CategorySet separators = *categories_named("Z");
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || (c > 0x85 && (category(c) & separators) != 0);
}

bool is_word(uint32_t c) {
  static const CategorySet words = *categories_named("L") | *categories_named("M") | *categories_named("Nd") |
                                   *categories_named("Nl") | *categories_named("Pc");
  const bool enclosed = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                        (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);  // Other_Alphabetic
  return (category(c) & words) != 0 || c == 0x200C || c == 0x200D || enclosed;
}

bool is_numeric(uint32_t c) {
  static const CategorySet numbers = *categories_named("N");
  const bool unicode_17 = (c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6);
  return (category(c) & numbers) != 0 || unicode_17;
}

bool nfc_may_change(uint32_t c) { return (table()[c] & kNfcFlag) != 0; }

}  // namespace drivetrain::bpe
