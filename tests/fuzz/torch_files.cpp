#include "torch_files.h"

#include <drivetrain/toolkit/torch_files/zip_archive.h>

#include <memory>

namespace drivetrain::fuzz {
namespace {

template <class... Numbers>
std::string little_endian(const Numbers&... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
  return bytes;
}

constexpr uint16_t kNone = 0, kVersion = 20;

// What the local header and the directory's entry have in common: from the flags to the lengths of name and extra.
std::string facts_of(const StoredRecord& record) {
  const auto size = static_cast<uint32_t>(record.bytes.size());
  const uint32_t crc = crc32(0, record.bytes.data(), record.bytes.size());
  return little_endian(kVersion, kNone, kNone, kNone, kNone, crc, size, size, static_cast<uint16_t>(record.name.size()),
                       kNone);
}

}  // namespace

std::vector<StoredRecord> records_of(const std::string& path) {
  const auto file = std::make_shared<const StoredFile>(path);
  const ZipArchive archive(file, 0, file->bytes());
  std::vector<StoredRecord> records;
  for (const auto& [name, record] : archive.records()) records.push_back({name, archive.text(record, record.bytes)});
  return records;
}

std::string archive_of(const std::vector<StoredRecord>& records) {
  std::string file, directory;
  for (const StoredRecord& record : records) {
    const auto at = static_cast<uint32_t>(file.size());
    file += little_endian(uint32_t{0x04034b50}) + facts_of(record) + record.name + record.bytes;
    directory += little_endian(uint32_t{0x02014b50}, kVersion) + facts_of(record) +
                 little_endian(kNone, kNone, kNone, uint32_t{0}, at) + record.name;
  }
  const auto count = static_cast<uint16_t>(records.size());
  return file + directory +
         little_endian(uint32_t{0x06054b50}, kNone, kNone, count, count, static_cast<uint32_t>(directory.size()),
                       static_cast<uint32_t>(file.size()), kNone);
}

const std::vector<std::string>& pickle_words() {
  static const std::vector<std::string> words = {"(",
                                                 ")",
                                                 "]",
                                                 "}",
                                                 "N",
                                                 "t",
                                                 "l",
                                                 "d",
                                                 "a",
                                                 "e",
                                                 "s",
                                                 "u",
                                                 "R",
                                                 "b",
                                                 "Q",
                                                 "0",
                                                 "1",
                                                 "2",
                                                 ".",
                                                 "\x85",
                                                 "\x86",
                                                 "\x87",
                                                 "\x88",
                                                 "\x89",
                                                 "\x81",
                                                 "\x92",
                                                 "\x93",
                                                 "\x94",
                                                 "\x8f",
                                                 "\x90",
                                                 "\x91",
                                                 std::string("h\x00", 2),
                                                 std::string("q\x00", 2),
                                                 std::string("K\x00", 2),
                                                 std::string("J\xff\xff\xff\x7f", 5),
                                                 "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
                                                 std::string("X\x00\x00\x00\x00", 5),
                                                 "ctorch._utils\n_rebuild_tensor_v2\n",
                                                 "ctorch._utils\n_rebuild_parameter\n",
                                                 "ctorch\nFloatStorage\n",
                                                 "ctorch\nSize\n",
                                                 "ccollections\nOrderedDict\n",
                                                 "ctorch._tensor\n_rebuild_from_type_v2\n"};
  return words;
}

}  // namespace drivetrain::fuzz
