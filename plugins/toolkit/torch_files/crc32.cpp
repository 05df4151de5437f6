#include <array>
#include <cstring>

#include <drivetrain/toolkit/torch_files/zip_archive.h>

namespace drivetrain {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Table k: the effect of a byte that k further bytes follow.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0xEDB88320u : crc >> 1;
    tables[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t i = 0; i < 256; ++i) tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 255];
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

// Eight bytes at a time ("slicing by 8"): about 2 GB/s, faster than most disks.
uint32_t crc32(uint32_t before, const void* data, uint64_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, from += 8) {
    uint64_t word = 0;
    std::memcpy(&word, from, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; bytes > 0; --bytes) crc = (crc >> 8) ^ kTables[0][(crc ^ *from++) & 255];
  return ~crc;
}

}  // namespace drivetrain
