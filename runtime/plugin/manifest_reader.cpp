#include "plugin/manifest_reader.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr char kManifestSection[] = ".drivetrain.manifest";
constexpr char kHeadersSection[] = ".drivetrain.headers";
constexpr char kBuildIdSection[] = ".note.gnu.build-id";
constexpr uint64_t kLargestManifest = 1 << 20;  // ours have one to four kilobytes

struct Unreadable {
  std::string why;
};

// Bounds-checked reads of an open file; throws Unreadable.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw Unreadable{concat("cannot be read: ", std::strerror(errno))};
    struct stat facts {};
    if (fstat(fd_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
      ::close(fd_);
      throw Unreadable{"is not a regular file"};
    }
    size_ = facts.st_size;
  }
  ElfFile(const ElfFile&) = delete;
  ~ElfFile() { ::close(fd_); }

  void read(void* to, uint64_t offset, uint64_t bytes, const char* what) const {
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
  std::string text(uint64_t offset, uint64_t bytes, const char* what) const {
    if (bytes > size_) bytes = size_ + 1;  // let read() refuse it before memory is asked for
    std::string out(bytes > size_ ? 0 : bytes, '\0');
    read(out.data(), offset, bytes, what);
    return out;
  }
  uint64_t size() const { return size_; }

 private:
  int fd_;
  uint64_t size_ = 0;
};

Elf64_Ehdr read_header(const ElfFile& file) {
  char magic[SELFMAG] = {};
  if (file.size() < SELFMAG) throw Unreadable{concat("is not an ELF file: it has ", file.size(), " bytes")};
  file.read(magic, 0, SELFMAG, "the signature");
  if (std::memcmp(magic, ELFMAG, SELFMAG) != 0) throw Unreadable{"is not an ELF file: the signature is missing"};
  Elf64_Ehdr header;
  file.read(&header, 0, sizeof header, "the ELF header");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    throw Unreadable{"is for another machine: not a 64-bit little-endian ELF file"};
  if (header.e_type != ET_DYN) throw Unreadable{"is an ELF file, but not a shared library"};
  if (header.e_shoff == 0 || header.e_shnum == 0)
    throw Unreadable{"has no section table, so its manifest cannot be found (was it packed with sstrip?)"};
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum)
    throw Unreadable{"is damaged: the section table contradicts itself"};
  return header;
}

std::string section_name(const std::string& names, uint32_t at) {
  return at < names.size() ? std::string(names.c_str() + at) : "";
}

// A note is three lengths, the owner "GNU", then the id.
std::string build_id_of(const std::string& note) {
  Elf64_Nhdr head;
  if (note.size() < sizeof head) return "";
  std::memcpy(&head, note.data(), sizeof head);
  const uint64_t begin = sizeof head + (uint64_t{head.n_namesz} + 3) / 4 * 4;
  if (head.n_type != NT_GNU_BUILD_ID || begin + head.n_descsz > note.size()) return "";
  std::string hex;
  for (uint64_t i = 0; i < head.n_descsz; ++i) {
    const unsigned char byte = note[begin + i];
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

// Names that end with a zero byte each, those of every source in turn; the linker may fill up with further zeros.
std::vector<std::string> names_in(const std::string& section) {
  std::set<std::string> names;
  for (size_t begin = 0; begin < section.size();) {
    const size_t end = std::min(section.find('\0', begin), section.size());
    if (end > begin) names.insert(section.substr(begin, end - begin));
    begin = end + 1;
  }
  return {names.begin(), names.end()};
}

void find_sections(const ElfFile& file, ManifestFile& found) {
  const Elf64_Ehdr header = read_header(file);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  file.read(sections.data(), header.e_shoff, sizeof(Elf64_Shdr) * header.e_shnum, "the section table");
  const Elf64_Shdr& strings = sections[header.e_shstrndx];
  const std::string names = file.text(strings.sh_offset, strings.sh_size, "the table of section names") + '\0';
  bool has_manifest = false;
  for (const Elf64_Shdr& section : sections) {
    const std::string name = section_name(names, section.sh_name);
    if (name == kBuildIdSection && section.sh_type == SHT_NOTE && section.sh_size < kLargestManifest)
      found.build_id = build_id_of(file.text(section.sh_offset, section.sh_size, "the build-id"));
    if (name == kHeadersSection && section.sh_type == SHT_PROGBITS && section.sh_size < kLargestManifest)
      found.headers = names_in(file.text(section.sh_offset, section.sh_size, "the list of headers"));
    if (name != kManifestSection || section.sh_type != SHT_PROGBITS || !(section.sh_flags & SHF_ALLOC)) continue;
    if (section.sh_size > kLargestManifest) throw Unreadable{"is damaged: its manifest is larger than 1 MiB"};
    found.manifest = file.text(section.sh_offset, section.sh_size, "the manifest");
    has_manifest = true;
  }
  if (!has_manifest)
    throw Unreadable{concat("is a shared library, but not one of ours: it has no section ", kManifestSection,
                            "; drivetrain_add_plugin of find_package(Drivetrain) writes it")};
}

}  // namespace

ManifestFile read_manifest(const std::string& path) {
  ManifestFile found;
  try {
    find_sections(ElfFile(path), found);
    while (!found.manifest.empty() && found.manifest.back() == '\0') found.manifest.pop_back();
  } catch (const Unreadable& e) {
    found.manifest.clear();
    found.problem = e.why;
  }
  return found;
}

}  // namespace drivetrain
