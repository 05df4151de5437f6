#include "plugin/private_symbols.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "plugin/elf_file.h"

namespace drivetrain {
namespace {

constexpr const char* kPrivate = "DRIVETRAIN_PRIVATE";  // tools/cmake/contract_exports.cmake

// The number by which symbols of that version are marked, as the list of wanted versions has it; 0: it is not wanted.
uint16_t number_of_version(const ElfFile& file, const std::vector<ElfSection>& sections, const Elf64_Shdr& table) {
  const std::string names = names_for(file, sections, table);
  const std::string bytes = table_of(file, table, "the wanted versions");
  int left = 10'000;  // of versions: more than any library has
  Elf64_Verneed library = {};
  for (uint64_t at = 0; at + sizeof library <= bytes.size(); at += library.vn_next) {
    std::memcpy(&library, bytes.data() + at, sizeof library);
    Elf64_Vernaux version = {};
    for (uint64_t one = at + library.vn_aux; one + sizeof version <= bytes.size(); one += version.vna_next) {
      std::memcpy(&version, bytes.data() + one, sizeof version);
      if (name_at(names, version.vna_name) == kPrivate) return version.vna_other;
      if (version.vna_next == 0 || --left < 0) break;
    }
    if (library.vn_next == 0 || --left < 0) break;
  }
  return 0;
}

std::string plain_name(const std::string& symbol) {
  int failed = 0;
  char* const name = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &failed);
  const std::string plain = name ? name : symbol;
  std::free(name);
  return plain;
}

void add_marked(const ElfFile& file, const std::vector<ElfSection>& sections, const Elf64_Shdr& marks, uint16_t number,
                std::vector<std::string>& list) {
  if (marks.sh_link >= sections.size()) throw Unreadable{"is damaged: its versions have no symbols"};
  const Elf64_Shdr& table = sections[marks.sh_link].facts;
  const std::string names = names_for(file, sections, table);
  const auto symbols = rows_of<Elf64_Sym>(file, table, "the table of symbols");
  const auto versions = rows_of<Elf64_Half>(file, marks, "the versions of symbols");
  for (size_t i = 0; i < std::min(symbols.size(), versions.size()); ++i)
    if ((versions[i] & 0x7fff) == number) list.push_back(plain_name(name_at(names, symbols[i].st_name)));
}

}  // namespace

std::vector<std::string> private_symbols(const std::string& path) {
  std::vector<std::string> list;
  try {
    const ElfFile file(path);
    const std::vector<ElfSection> sections = read_sections(file);
    uint16_t number = 0;
    for (const ElfSection& section : sections)
      if (section.facts.sh_type == SHT_GNU_verneed) number = number_of_version(file, sections, section.facts);
    for (const ElfSection& section : sections)
      if (number != 0 && section.facts.sh_type == SHT_GNU_versym)
        add_marked(file, sections, section.facts, number, list);
  } catch (const Unreadable&) {
  }
  return list;
}

}  // namespace drivetrain
