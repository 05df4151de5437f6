// Archives of torch.save taken apart and put together again, so that a damaged pickle stands in one whose CRC-32 is
// right.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::fuzz {

struct StoredRecord {
  std::string name, bytes;
};

std::vector<StoredRecord> records_of(const std::string& path);
std::string archive_of(const std::vector<StoredRecord>& records);

// Opcodes and names that pickles of torch.save are made of.
const std::vector<std::string>& pickle_words();

}  // namespace drivetrain::fuzz
