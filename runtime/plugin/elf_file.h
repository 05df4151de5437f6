// Bounds-checked reading of ELF files. Nothing of a file is executed or mapped, so a broken or hostile one costs a
// message and no more. No state; any thread.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

// Why a file cannot be read as wanted: a phrase that continues "<path> ...".
struct Unreadable {
  std::string why;
};

// An open file; throws Unreadable.
class DRIVETRAIN_INTERNAL ElfFile {
 public:
  explicit ElfFile(const std::string& path);
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;
  ~ElfFile();

  // `what` is read: for the message.
  void read(void* to, uint64_t offset, uint64_t bytes, const char* what) const;
  std::string text(uint64_t offset, uint64_t bytes, const char* what) const;
  uint64_t size() const { return size_; }

 private:
  int fd_;
  uint64_t size_ = 0;
};

struct ElfSection {
  std::string name;
  Elf64_Shdr facts;
};

// The sections of a shared library for this machine. Throws Unreadable for everything else, a program among it.
DRIVETRAIN_INTERNAL std::vector<ElfSection> read_sections(const ElfFile& file);

// The bytes of a table; `what`: for the message. Throws Unreadable, too, for one larger than any library has.
DRIVETRAIN_INTERNAL std::string table_of(const ElfFile& file, const Elf64_Shdr& section, const char* what);
template <class Row>
std::vector<Row> rows_of(const ElfFile& file, const Elf64_Shdr& section, const char* what) {
  const std::string bytes = table_of(file, section, what);
  const auto* const first = reinterpret_cast<const Row*>(bytes.data());
  return {first, first + bytes.size() / sizeof(Row)};
}
// The names that a table refers to, by its sh_link, and that at a place of them.
DRIVETRAIN_INTERNAL std::string names_for(const ElfFile& file, const std::vector<ElfSection>& sections,
                                          const Elf64_Shdr& table);
DRIVETRAIN_INTERNAL std::string name_at(const std::string& names, uint64_t at);

}  // namespace drivetrain
