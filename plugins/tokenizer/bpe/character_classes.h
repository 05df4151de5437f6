// Which sets of a pattern a character is in, as one small number: characters in the same sets have the same one. Const
// calls from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "pattern.h"

namespace drivetrain::bpe {

class CharacterClasses {
 public:
  // Error(config) beginning with `name` if there were very many.
  CharacterClasses(const std::vector<const CharacterSet*>& sets, const std::string& name);

  uint32_t count() const { return static_cast<uint32_t>(members_.size()); }
  // Whether the characters of a class are in a set, which is given by its place in the list.
  bool has(size_t set, uint32_t of) const { return members_[of][set]; }
  uint32_t of_ascii(unsigned char c) const { return ascii_[c]; }
  uint32_t of(uint32_t c) const { return pages_[pages_of_[c / kPage] * size_t{kPage} + c % kPage]; }

 private:
  static constexpr int kPage = 256;

  std::vector<std::vector<bool>> members_;  // by class and set
  std::array<uint16_t, 128> ascii_ = {};
  std::vector<uint16_t> pages_of_;  // by code point / kPage: equal pages are one
  std::vector<uint16_t> pages_;     // classes
};

}  // namespace drivetrain::bpe
