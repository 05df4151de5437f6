// Reading zip archives as torch.save writes them: records without compression, with 64-bit sizes where needed. The
// directory at the end is checked at opening, the CRC-32 of a record before its first bytes are given out.
//
// Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5; pytorch caffe2/serialize/inline_container.cc. Memory: the
// directory, at most 8 times its size in the file. Thread: const calls from any thread. Errors: Error(checkpoint)
// naming file, byte and record.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <drivetrain/toolkit/torch_files/stored_file.h>

namespace drivetrain {

struct ZipRecord {
  std::string name;
  uint64_t header = 0;  // where its local header begins, in the file
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

class ZipArchive {
 public:
  // The bytes [begin, end) of the file are the archive.
  ZipArchive(std::shared_ptr<const StoredFile> file, uint64_t begin, uint64_t end);

  const std::string& path() const { return file_->path(); }
  const std::map<std::string, ZipRecord>& records() const { return records_; }
  const ZipRecord* find(const std::string& name) const;  // null: there is none

  // Bytes [offset, offset + bytes) of the record. The first call for a record reads the whole of it once.
  void read(const ZipRecord& record, uint64_t offset, void* to, uint64_t bytes) const;
  // The whole record; Error if it has more bytes than `most`.
  std::string text(const ZipRecord& record, uint64_t most) const;
  // Compares the record's CRC-32, if that was not done yet.
  void check(const ZipRecord& record) const;

 private:
  struct Directory {
    uint64_t offset = 0, bytes = 0, entries = 0;
  };
  Directory find_directory() const;
  Directory wide_directory(uint64_t end_record) const;
  void read_directory(const Directory& directory);
  uint64_t data_of(const ZipRecord& record) const;

  const std::shared_ptr<const StoredFile> file_;
  const uint64_t begin_, end_;
  std::map<std::string, ZipRecord> records_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, uint64_t> checked_;  // where the data of the records begin whose CRC was compared
};

// The CRC-32 of zip (polynomial 0xEDB88320), going on from the one of the bytes before; 0 to begin.
uint32_t crc32(uint32_t before, const void* data, uint64_t bytes);

}  // namespace drivetrain
