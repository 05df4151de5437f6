#include "plugin/manifest_reader.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include <drivetrain/error.h>

#include "base/hex.h"
#include "plugin/elf_file.h"

namespace drivetrain {
namespace {

constexpr char kManifestSection[] = ".drivetrain.manifest";
constexpr char kHeadersSection[] = ".drivetrain.headers";
constexpr char kBuildIdSection[] = ".note.gnu.build-id";
constexpr uint64_t kLargestManifest = 1 << 20;  // ours have one to four kilobytes

// A note is three lengths, the owner "GNU", then the id.
std::string build_id_of(const std::string& note) {
  Elf64_Nhdr head;
  if (note.size() < sizeof head) return "";
  std::memcpy(&head, note.data(), sizeof head);
  const uint64_t begin = sizeof head + (uint64_t{head.n_namesz} + 3) / 4 * 4;
  if (head.n_type != NT_GNU_BUILD_ID || begin + head.n_descsz > note.size()) return "";
  return hex_text(std::string_view(note).substr(begin, head.n_descsz));
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
  bool has_manifest = false;
  for (const auto& [name, section] : read_sections(file)) {
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
