// Damaged copies of inputs: bits, numbers, parts. The same seed gives the same copies on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drivetrain::fuzz {

class Mutator {
 public:
  // `seeds`: not empty. `words`: put in here and there.
  Mutator(const std::vector<std::string>& seeds, const std::vector<std::string>& words, uint64_t seed)
      : seeds_(seeds), words_(words), state_(seed) {}

  std::string next();  // one of the seeds with one to five changes

 private:
  uint64_t random();
  size_t below(size_t count) { return count == 0 ? 0 : static_cast<size_t>(random() % count); }
  void change(std::string& input);
  void change_byte(std::string& input);
  void change_number(std::string& input);
  void change_digits(std::string& input);
  void remove_part(std::string& input);
  void repeat_part(std::string& input);
  void insert_word(std::string& input);
  void take_part_of_another(std::string& input);

  const std::vector<std::string>& seeds_;
  const std::vector<std::string>& words_;
  uint64_t state_;
};

}  // namespace drivetrain::fuzz
