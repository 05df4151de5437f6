#include "doctor/elf_links.h"

#include <filesystem>
#include <sstream>

#include "plugin/elf_file.h"

namespace drivetrain {
namespace {

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

}  // namespace

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
