#include "plugin/elf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kThisMachine = EM_AARCH64;
#else
constexpr Elf64_Half kThisMachine = EM_NONE;  // any is read
#endif

std::string machine_name(Elf64_Half machine) {
  constexpr std::pair<Elf64_Half, const char*> kNames[] = {
      {EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"}, {EM_PPC64, "ppc64"}, {EM_RISCV, "riscv"}, {EM_S390, "s390"}};
  for (const auto& [number, name] : kNames)
    if (number == machine) return name;
  return concat("machine ", machine, " of the ELF standard");
}

Elf64_Ehdr read_header(const ElfFile& file) {
  char magic[SELFMAG] = {};
  if (file.size() < SELFMAG) throw Unreadable{concat("is not an ELF file: it has ", file.size(), " bytes")};
  file.read(magic, 0, SELFMAG, "the signature");
  if (std::memcmp(magic, ELFMAG, SELFMAG) != 0) throw Unreadable{"is not an ELF file: the signature is missing"};
  Elf64_Ehdr header;
  file.read(&header, 0, sizeof header, "the ELF header");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    throw Unreadable{"is for another machine: not a 64-bit little-endian ELF file"};
  if (kThisMachine != EM_NONE && header.e_machine != kThisMachine)
    throw Unreadable{concat("is for another machine: ", machine_name(header.e_machine), ", and this is ",
                            machine_name(kThisMachine))};
  if (header.e_type == ET_EXEC) throw Unreadable{"is a program, not a shared library"};
  if (header.e_type != ET_DYN) throw Unreadable{"is an ELF file, but not a shared library"};
  if (header.e_shoff == 0 || header.e_shnum == 0)
    throw Unreadable{"has no section table, so its manifest cannot be found (was it packed with sstrip?)"};
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum)
    throw Unreadable{"is damaged: the section table contradicts itself"};
  return header;
}

// A program that may be loaded at any address is of the same type as a library, but marked.
bool is_program(const ElfFile& file, const ElfSection& dynamic) {
  for (const Elf64_Dyn& entry : rows_of<Elf64_Dyn>(file, dynamic.facts, "the dynamic section")) {
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_FLAGS_1 && (entry.d_un.d_val & DF_1_PIE) != 0) return true;
  }
  return false;
}

}  // namespace

ElfFile::ElfFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) throw Unreadable{concat("cannot be read: ", std::strerror(errno))};
  struct stat facts {};
  if (fstat(fd_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    ::close(fd_);
    throw Unreadable{S_ISDIR(facts.st_mode) ? "is a folder, not a regular file" : "is not a regular file"};
  }
  size_ = facts.st_size;
}

ElfFile::~ElfFile() { ::close(fd_); }

void ElfFile::read(void* to, uint64_t offset, uint64_t bytes, const char* what) const {
  if (offset > size_ || bytes > size_ - offset)
    throw Unreadable{concat("is truncated: ", what, " reaches to byte ", offset + bytes, ", the file has ", size_)};
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(to) + done, bytes - done, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Unreadable{concat("cannot be read: ", std::strerror(errno))};
    if (n == 0) throw Unreadable{"shrank while it was read"};
    done += n;
  }
}

std::string ElfFile::text(uint64_t offset, uint64_t bytes, const char* what) const {
  if (bytes > size_) bytes = size_ + 1;  // let read() refuse it before memory is asked for
  std::string out(bytes > size_ ? 0 : bytes, '\0');
  read(out.data(), offset, bytes, what);
  return out;
}

std::vector<ElfSection> read_sections(const ElfFile& file) {
  const Elf64_Ehdr header = read_header(file);
  std::vector<Elf64_Shdr> table(header.e_shnum);
  file.read(table.data(), header.e_shoff, sizeof(Elf64_Shdr) * header.e_shnum, "the section table");
  const Elf64_Shdr& strings = table[header.e_shstrndx];
  const std::string names = file.text(strings.sh_offset, strings.sh_size, "the table of section names") + '\0';
  std::vector<ElfSection> sections;
  for (const Elf64_Shdr& facts : table) {
    sections.push_back({facts.sh_name < names.size() ? names.c_str() + facts.sh_name : "", facts});
    if (facts.sh_type == SHT_DYNAMIC && is_program(file, sections.back()))
      throw Unreadable{"is a program, not a shared library"};
  }
  return sections;
}

std::string table_of(const ElfFile& file, const Elf64_Shdr& section, const char* what) {
  constexpr uint64_t kLargest = uint64_t{1} << 30;  // libtorch_cpu.so has 50 MB of names
  if (section.sh_size > kLargest) throw Unreadable{concat("is damaged: ", what, " has ", section.sh_size, " bytes")};
  return file.text(section.sh_offset, section.sh_size, what);
}

std::string names_for(const ElfFile& file, const std::vector<ElfSection>& sections, const Elf64_Shdr& table) {
  if (table.sh_link >= sections.size()) throw Unreadable{"is damaged: a table has no names"};
  return table_of(file, sections[table.sh_link].facts, "a table of names") + '\0';
}

std::string name_at(const std::string& names, uint64_t at) { return at < names.size() ? names.c_str() + at : ""; }

}  // namespace drivetrain
