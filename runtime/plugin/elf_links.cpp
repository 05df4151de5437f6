#include "plugin/elf_links.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <drivetrain/error.h>

#include "plugin/elf_file.h"

namespace drivetrain {
namespace {

constexpr uint64_t kLargestTable = uint64_t{1} << 30;  // libtorch_cpu.so has 50 MB of names

template <class Row>
std::vector<Row> rows_of(const ElfFile& file, const Elf64_Shdr& section, const char* what) {
  if (section.sh_size > kLargestTable)
    throw Unreadable{concat("is damaged: ", what, " has ", section.sh_size, " bytes")};
  const std::string bytes = file.text(section.sh_offset, section.sh_size / sizeof(Row) * sizeof(Row), what);
  const auto* const first = reinterpret_cast<const Row*>(bytes.data());
  return {first, first + bytes.size() / sizeof(Row)};
}

// The names that a table refers to, by its sh_link.
std::string names_for(const ElfFile& file, const std::vector<ElfSection>& sections, const Elf64_Shdr& table) {
  if (table.sh_link >= sections.size()) throw Unreadable{"is damaged: a table has no names"};
  const Elf64_Shdr& names = sections[table.sh_link].facts;
  if (names.sh_size > kLargestTable) throw Unreadable{"is damaged: its table of names is too large"};
  return file.text(names.sh_offset, names.sh_size, "a table of names") + '\0';
}

std::string name_at(const std::string& names, uint64_t at) { return at < names.size() ? names.c_str() + at : ""; }

void add_run_paths(const std::string& list, const std::string& origin, std::vector<std::string>& paths) {
  std::istringstream words(list);
  for (std::string path; std::getline(words, path, ':');) {
    for (const std::string_view word : {"$ORIGIN", "${ORIGIN}"})
      for (size_t at = path.find(word); at != std::string::npos; at = path.find(word, at + origin.size()))
        path.replace(at, word.size(), origin);
    if (!path.empty()) paths.push_back(path);
  }
}

void read_dynamic(const ElfFile& file, const std::vector<ElfSection>& sections, const Elf64_Shdr& table,
                  const std::string& origin, ElfLinks& links) {
  const std::string names = names_for(file, sections, table);
  for (const Elf64_Dyn& entry : rows_of<Elf64_Dyn>(file, table, "the dynamic section")) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) links.needed.push_back(name_at(names, entry.d_un.d_val));
    if (entry.d_tag == DT_RUNPATH || entry.d_tag == DT_RPATH)
      add_run_paths(name_at(names, entry.d_un.d_val), origin, links.run_paths);
  }
}

void read_symbols(const ElfFile& file, const std::vector<ElfSection>& sections, const Elf64_Shdr& table,
                  ElfLinks& links) {
  const std::string names = names_for(file, sections, table);
  for (const Elf64_Sym& symbol : rows_of<Elf64_Sym>(file, table, "the table of symbols")) {
    const unsigned char binding = ELF64_ST_BIND(symbol.st_info);
    if (symbol.st_name == 0 || binding == STB_LOCAL) continue;
    if (symbol.st_shndx != SHN_UNDEF)
      links.given.push_back(name_at(names, symbol.st_name));
    else if (binding != STB_WEAK)
      links.wanted.push_back(name_at(names, symbol.st_name));
  }
}

constexpr const char* kPrivate = "DRIVETRAIN_PRIVATE";  // tools/cmake/contract_exports.cmake

// The number by which symbols of that version are marked, as the list of wanted versions has it; 0: it is not wanted.
uint16_t number_of_version(const ElfFile& file, const std::vector<ElfSection>& sections, const Elf64_Shdr& table) {
  const std::string names = names_for(file, sections, table);
  const std::string bytes = file.text(table.sh_offset, std::min(table.sh_size, kLargestTable), "the wanted versions");
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

ElfLinks read_links(const std::string& path) {
  ElfLinks links;
  try {
    const ElfFile file(path);
    std::error_code failed;
    const std::string origin = std::filesystem::canonical(path, failed).parent_path().string();
    const std::vector<ElfSection> sections = read_sections(file);
    for (const ElfSection& section : sections) {
      if (section.facts.sh_type == SHT_DYNAMIC) read_dynamic(file, sections, section.facts, origin, links);
      if (section.facts.sh_type == SHT_DYNSYM) read_symbols(file, sections, section.facts, links);
    }
  } catch (const Unreadable& e) {
    links = {};
    links.problem = e.why;
  }
  return links;
}

}  // namespace drivetrain
