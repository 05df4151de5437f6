// Files of torch.save with a few bytes of their pickle changed and its checksum mended, so that what reads the values
// has to notice; other files with bytes changed. For tests of formats.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include <drivetrain/toolkit/torch_files/zip_archive.h>

namespace drivetrain::test {

class Spoiler {
 public:
  explicit Spoiler(unsigned seed) : random_(seed) {}

  size_t pick(size_t below) { return static_cast<size_t>(random_()) % (below > 0 ? below : 1); }

  // Of one to three places: another byte, another bit, or bytes from elsewhere.
  void change(std::string& bytes, size_t begin, size_t size) {
    for (size_t places = 1 + pick(3); places > 0; --places) {
      const size_t at = begin + pick(size), from = begin + pick(size), some = 1 + pick(8);
      const size_t kind = pick(3);
      if (kind == 0) bytes[at] = static_cast<char>(pick(256));
      if (kind == 1) bytes[at] = static_cast<char>(bytes[at] ^ (1 << pick(8)));
      if (kind == 2 && std::max(at, from) + some <= begin + size) std::memmove(&bytes[at], &bytes[from], some);
    }
  }

  // `bytes`: a file whose first record is its pickle.
  void change_pickle(std::string& bytes) {
    const size_t directory = bytes.find("PK\x01\x02");
    const auto size = number<uint32_t>(bytes, directory + 24);
    const size_t data = 30u + number<uint16_t>(bytes, 26) + number<uint16_t>(bytes, 28);
    change(bytes, data, size);
    mend(bytes);
  }

  // The checksum of its pickle as it is now.
  static void mend(std::string& bytes) {
    const size_t directory = bytes.find("PK\x01\x02");
    const auto size = number<uint32_t>(bytes, directory + 24);
    const uint32_t crc = crc32(0, &bytes[30u + number<uint16_t>(bytes, 26) + number<uint16_t>(bytes, 28)], size);
    std::memcpy(&bytes[directory + 16], &crc, sizeof crc);
  }

  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

 private:
  template <class T>
  static T number(const std::string& bytes, size_t at) {
    T value;
    std::memcpy(&value, &bytes.at(at), sizeof value);
    return value;
  }
  std::mt19937 random_;
};

}  // namespace drivetrain::test
