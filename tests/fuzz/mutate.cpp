#include "mutate.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace drivetrain::fuzz {
namespace {

constexpr size_t kMost = size_t{1} << 18;  // bytes of an input

}  // namespace

// splitmix64
uint64_t Mutator::random() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string Mutator::next() {
  std::string input = seeds_[below(seeds_.size())];
  for (size_t changes = 1 + below(5); changes > 0; --changes) change(input);
  if (input.size() > kMost) input.resize(kMost);
  return input;
}

void Mutator::change(std::string& input) {
  if (input.empty()) return insert_word(input);
  switch (below(12)) {
    case 0:
    case 1:
      return change_byte(input);
    case 2:
    case 3:
    case 4:
      return change_number(input);
    case 5:
    case 6:
      return change_digits(input);
    case 7:
      return remove_part(input);
    case 8:
      return repeat_part(input);
    case 9:
      return insert_word(input);
    case 10:
      return take_part_of_another(input);
    default:
      input.resize(below(input.size()));
  }
}

void Mutator::change_byte(std::string& input) {
  char& byte = input[below(input.size())];
  const size_t how = below(3);
  byte = static_cast<char>(how == 0 ? byte ^ (1 << below(8)) : how == 1 ? byte + 1 : static_cast<char>(random()));
}

// A little-endian number of 1 to 8 bytes at any place: a limit, something near the input's size, or a neighbour.
void Mutator::change_number(std::string& input) {
  const size_t bytes = std::min<size_t>(size_t{1} << below(4), input.size()), at = below(input.size() - bytes + 1);
  uint64_t value = 0;
  std::memcpy(&value, input.data() + at, bytes);
  const uint64_t high = uint64_t{1} << (8 * bytes - 1), size = input.size();
  const uint64_t limits[] = {0,    1,        high,     high - 1, ~uint64_t{0},      value + 1,    value - 1, value * 2,
                             size, size - 1, size + 1, at,       size - at - bytes, value ^ high, high / 8,  0x10000};
  value = limits[below(std::size(limits))];
  std::memcpy(input.data() + at, &value, bytes);
}

// A number that is written out.
void Mutator::change_digits(std::string& input) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto from = input.begin() + static_cast<std::ptrdiff_t>(below(input.size()));
  const auto begin = std::find_if(from, input.end(), is_digit);
  if (begin == input.end()) return change_byte(input);
  const auto end = std::find_if_not(begin, input.end(), is_digit);
  static const char* const numbers[] = {
      "0",    "1",          "-1",         "9223372036854775807",  "-9223372036854775808",
      "1e18", "2147483648", "4294967296", "18446744073709551615", "0.5",
      "1e400"};
  input.replace(begin, end, numbers[below(std::size(numbers))]);
}

void Mutator::remove_part(std::string& input) {
  const size_t at = below(input.size());
  input.erase(at, 1 + below(std::min<size_t>(input.size() - at, size_t{1} << below(12))));
}

void Mutator::repeat_part(std::string& input) {
  const size_t at = below(input.size()),
               length = 1 + below(std::min<size_t>(input.size() - at, size_t{1} << below(12)));
  const std::string part = input.substr(at, length);
  for (size_t times = size_t{1} << below(6); times > 0 && input.size() + length < kMost; --times)
    input.insert(at, part);
}

void Mutator::insert_word(std::string& input) {
  const std::string word = words_.empty() ? std::string(1, static_cast<char>(random())) : words_[below(words_.size())];
  const size_t at = below(input.size() + 1);
  if (below(2) == 0)
    input.insert(at, word);
  else
    input.replace(at, std::min(word.size(), input.size() - at), word);
}

void Mutator::take_part_of_another(std::string& input) {
  const std::string& other = seeds_[below(seeds_.size())];
  if (other.empty()) return;
  const size_t from = below(other.size()), to = below(input.size());
  input.replace(to, below(input.size() - to + 1), other, from, 1 + below(other.size() - from));
}

}  // namespace drivetrain::fuzz
