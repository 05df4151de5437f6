// General categories of code points, as the regular expressions of Hugging Face's tokenizers know them. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace drivetrain::bpe {

inline constexpr uint32_t kCodePoints = 0x110000;

// A set of general categories, one bit each.
using CategorySet = uint32_t;

// Bit of the category of a code point.
CategorySet category(uint32_t code_point);
// "L", "Lu", "N", ...; nothing for what is no category.
std::optional<CategorySet> categories_named(std::string_view name);

bool is_space(uint32_t code_point);    // \s
bool is_word(uint32_t code_point);     // \w of added tokens with "single_word"
bool is_numeric(uint32_t code_point);  // of the pre-tokenizer Digits
// Whether a text can change under NFC because this code point is in it.
bool nfc_may_change(uint32_t code_point);

}  // namespace drivetrain::bpe
