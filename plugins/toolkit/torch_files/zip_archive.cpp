#include <drivetrain/toolkit/torch_files/zip_archive.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace drivetrain {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kEnd = 0x06054b50, kWideEnd = 0x06064b50,
                   kWideLocator = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kWideEndBytes = 56, kLocatorBytes = 20;
constexpr uint64_t kMostComment = 65535;
constexpr uint64_t kPiece = uint64_t{1} << 20;  // bytes read at once for a CRC

template <class T>
T number(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The 64-bit values of an entry stand in an extra field, only those whose 32-bit places are full, in a fixed order.
void read_wide_sizes(std::string_view extra, uint64_t& bytes, uint64_t& packed, uint64_t& header) {
  while (extra.size() >= 4) {
    const auto id = number<uint16_t>(extra.data());
    const size_t length = std::min<size_t>(number<uint16_t>(extra.data() + 2), extra.size() - 4);
    std::string_view field = extra.substr(4, length);
    extra.remove_prefix(4 + length);
    if (id != 1) continue;
    for (uint64_t* value : {&bytes, &packed, &header}) {
      if (*value != 0xffffffff) continue;
      if (field.size() < 8) return;
      *value = number<uint64_t>(field.data());
      field.remove_prefix(8);
    }
  }
}

}  // namespace

ZipArchive::ZipArchive(std::shared_ptr<const StoredFile> file, uint64_t begin, uint64_t end)
    : file_(std::move(file)), begin_(begin), end_(end) {
  if (begin_ > end_ || end_ > file_->bytes())
    throw bad_file(path(), begin_, "an archive up to byte ", end_, " is wanted, the file has ", file_->bytes());
  read_directory(find_directory());
}

const ZipRecord* ZipArchive::find(const std::string& name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second;
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const uint64_t size = std::min(end_ - begin_, kEndBytes + kMostComment), from = end_ - size;
  std::string tail(size, '\0');
  file_->read(from, tail.data(), size);
  if (size < kEndBytes) throw bad_file(path(), begin_, "is no zip archive");
  for (uint64_t at = size - kEndBytes + 1; at-- > 0;) {
    const char* record = tail.data() + at;
    if (number<uint32_t>(record) != kEnd || number<uint16_t>(record + 20) != size - at - kEndBytes) continue;
    Directory found{number<uint32_t>(record + 16), number<uint32_t>(record + 12), number<uint16_t>(record + 10)};
    const bool wide = found.offset == 0xffffffff || found.bytes == 0xffffffff || found.entries == 0xffff;
    return wide ? wide_directory(from + at) : found;
  }
  throw bad_file(path(), end_, "the directory of the zip archive is missing: the file is truncated or no such archive");
}

ZipArchive::Directory ZipArchive::wide_directory(uint64_t end_record) const {
  char locator[kLocatorBytes], record[kWideEndBytes];
  if (end_record - begin_ < kLocatorBytes) throw bad_file(path(), end_record, "the zip64 locator is missing");
  file_->read(end_record - kLocatorBytes, locator, kLocatorBytes);
  if (number<uint32_t>(locator) != kWideLocator) throw bad_file(path(), end_record, "the zip64 locator is missing");
  const auto offset = number<uint64_t>(locator + 8);
  if (offset > end_record - begin_ || end_record - begin_ - offset < kWideEndBytes)
    throw bad_file(path(), end_record, "the zip64 directory's place ", offset, " lies outside of the archive");
  file_->read(begin_ + offset, record, kWideEndBytes);
  if (number<uint32_t>(record) != kWideEnd) throw bad_file(path(), begin_ + offset, "no zip64 directory is there");
  return {number<uint64_t>(record + 48), number<uint64_t>(record + 40), number<uint64_t>(record + 32)};
}

void ZipArchive::read_directory(const Directory& directory) {
  const uint64_t size = end_ - begin_;
  if (directory.offset > size || directory.bytes > size - directory.offset ||
      directory.entries > directory.bytes / kEntryBytes)
    throw bad_file(path(), end_, "the zip directory (", directory.bytes, " bytes at ", directory.offset, " for ",
                   directory.entries, " records) lies outside of the archive");
  std::string text(directory.bytes, '\0');
  const uint64_t place = begin_ + directory.offset;
  file_->read(place, text.data(), text.size());
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const char* entry = text.data() + at;
    if (text.size() - at < kEntryBytes || number<uint32_t>(entry) != kDirectoryEntry)
      throw bad_file(path(), place + at, "no zip directory entry is there; wanted entry ", i + 1, " of ",
                     directory.entries);
    const uint64_t name = number<uint16_t>(entry + 28), extra = number<uint16_t>(entry + 30),
                   comment = number<uint16_t>(entry + 32);
    if (text.size() - at - kEntryBytes < name + extra + comment)
      throw bad_file(path(), place + at, "a zip directory entry is longer than the directory");
    ZipRecord record;
    record.name.assign(entry + kEntryBytes, name);
    record.crc = number<uint32_t>(entry + 16);
    record.bytes = number<uint32_t>(entry + 24), record.header = number<uint32_t>(entry + 42);
    uint64_t packed = number<uint32_t>(entry + 20);
    read_wide_sizes({entry + kEntryBytes + name, extra}, record.bytes, packed, record.header);
    if (number<uint16_t>(entry + 10) != 0 || packed != record.bytes)
      throw bad_file(path(), place + at, "record \"", record.name,
                     "\" is compressed; only archives of torch.save are read, which are not");
    if ((number<uint16_t>(entry + 8) & 1) != 0)
      throw bad_file(path(), place + at, "record \"", record.name, "\" is encrypted");
    if (record.header > size || record.bytes > size - record.header)
      throw bad_file(path(), place + at, "record \"", record.name, "\" of ", record.bytes,
                     " bytes lies outside of the archive");
    record.header += begin_;
    const std::string key = record.name;
    if (!records_.emplace(key, std::move(record)).second)
      throw bad_file(path(), place + at, "record \"", key, "\" is there twice");
    at += kEntryBytes + name + extra + comment;
  }
}

uint64_t ZipArchive::data_of(const ZipRecord& record) const {
  char header[kLocalBytes];
  if (end_ - record.header < kLocalBytes)
    throw bad_file(path(), record.header, "record \"", record.name, "\" ends early");
  file_->read(record.header, header, kLocalBytes);
  if (number<uint32_t>(header) != kLocalHeader)
    throw bad_file(path(), record.header, "the header of record \"", record.name, "\" is not there");
  const uint64_t data = record.header + kLocalBytes + number<uint16_t>(header + 26) + number<uint16_t>(header + 28);
  if (data > end_ || record.bytes > end_ - data)
    throw bad_file(path(), record.header, "record \"", record.name, "\" of ", record.bytes, " bytes ends early");
  return data;
}

void ZipArchive::check(const ZipRecord& record) const {
  {
    const std::lock_guard lock(mutex_);
    if (checked_.count(record.name)) return;
  }
  const uint64_t data = data_of(record);
  const auto piece = std::make_unique<char[]>(std::min(record.bytes, kPiece));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < record.bytes; at += kPiece) {
    const uint64_t some = std::min(kPiece, record.bytes - at);
    file_->read(data + at, piece.get(), some);
    crc = crc32(crc, piece.get(), some);
  }
  if (crc != record.crc)
    throw bad_file(path(), data, "record \"", record.name, "\" of ", record.bytes,
                   " bytes is damaged: its CRC-32 is another");
  const std::lock_guard lock(mutex_);
  checked_.emplace(record.name, data);
}

void ZipArchive::read(const ZipRecord& record, uint64_t offset, void* to, uint64_t bytes) const {
  if (offset > record.bytes || bytes > record.bytes - offset)
    throw bad_file(path(), record.header, "record \"", record.name, "\" has ", record.bytes, " bytes; wanted ", bytes,
                   " from ", offset, " on");
  check(record);
  uint64_t data = 0;
  {
    const std::lock_guard lock(mutex_);
    data = checked_.at(record.name);
  }
  file_->read(data + offset, to, bytes);
}

std::string ZipArchive::text(const ZipRecord& record, uint64_t most) const {
  if (record.bytes > most)
    throw bad_file(path(), record.header, "record \"", record.name, "\" has ", record.bytes, " bytes; at most ", most,
                   " are read");
  std::string text(record.bytes, '\0');
  read(record, 0, text.data(), text.size());
  return text;
}

}  // namespace drivetrain
