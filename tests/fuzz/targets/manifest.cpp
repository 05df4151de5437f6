// What a plugin library says about itself: the sections of the ELF file, and the manifest in one of them.
#include "plugin/manifest.h"

#include <elf.h>

#include <cstring>

#include "all.h"
#include "doctor/elf_links.h"
#include "plugin/compare.h"
#include "plugin/manifest_reader.h"
#include "scratch.h"

namespace drivetrain::fuzz {
namespace {

constexpr const char* kLibrary = "attention_fuzz.so";

void judge(const std::string& text, const std::vector<std::string>& headers) {
  const Manifest manifest = parse_manifest(text);
  FUZZ_CHECK(!manifest.entries.empty());
  const auto fields = compare_fingerprints(with_reached_headers(manifest.fingerprint, headers), runtime_fingerprint(),
                                           this_machine(), true);
  FUZZ_CHECK(!field_lines(fields, true).empty());
  if (is_refused(fields)) FUZZ_CHECK(!refusal_text("attention/fuzz", kLibrary, fields).empty());
}

void read_manifest_text(const std::string& input) { judge(input, {"attention.h"}); }

void read_elf(const std::string& input) {
  const std::string path = scratch_file(kLibrary, input);
  const ElfLinks links = read_links(path);
  FUZZ_CHECK(links.problem.empty() || links.needed.empty());
  const ManifestFile file = read_manifest(path);
  FUZZ_CHECK(file.problem.empty() || file.manifest.empty());
  if (!file.problem.empty()) throw fail(ErrorCode::plugin, file.problem);
  judge(file.manifest, file.headers);
}

std::string manifest_text(const std::string& entries) {
  return concat(
      "DRIVETRAIN-MANIFEST 1\n{\"library\":\"attention_fuzz\",\"version\":\"0.1.0\",\"licence\":\"MIT\",\"entries\":[",
      entries, "],\"fingerprint\":", runtime_fingerprint().to_json(), "}");
}

constexpr const char* kPlain = R"({"kind":"attention","name":"fuzz","summary":"does nothing"})";

Inputs manifest_seeds() {
  return {manifest_text(kPlain),
          manifest_text(R"({"kind":"data_parallel","name":"fuzz","summary":"a b","section":"fuzz_section",)"
                        R"("section_form":{"aliases":["fs"],"number":"n","on":{"a":1,"b":true},"off":{"a":0}},)"
                        R"("types":["Fuzz","F2"],"device":"cpu","default":true},)"
                        R"({"kind":"optimizer","name":"other","summary":"c","uses_cuda":true})")};
}

struct Section {
  const char* name;
  uint32_t type;
  std::string bytes;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The smallest shared library that is one of ours: a header, sections, and the table of these.
std::string small_library(const std::string& manifest) {
  std::string note = bytes_of(Elf64_Nhdr{4, 20, NT_GNU_BUILD_ID}) + std::string("GNU\0", 4) + std::string(20, '\x5a');
  std::vector<Section> sections = {
      {"", SHT_NULL, ""},
      {".note.gnu.build-id", SHT_NOTE, note},
      {".drivetrain.headers", SHT_PROGBITS, std::string("attention.h\0plugin.h\0\0\0", 24)},
      {".drivetrain.manifest", SHT_PROGBITS, manifest + '\0'},
      {".shstrtab", SHT_STRTAB, ""}};
  std::string names;
  for (const Section& section : sections) names += section.name + std::string(1, '\0');
  sections.back().bytes = names;
  std::string file(sizeof(Elf64_Ehdr), '\0'), table;
  uint32_t name = 0;
  for (const Section& section : sections) {
    Elf64_Shdr row{};
    row.sh_name = name, row.sh_type = section.type, row.sh_flags = SHF_ALLOC;
    row.sh_offset = file.size(), row.sh_size = section.bytes.size();
    name += static_cast<uint32_t>(std::strlen(section.name)) + 1;
    file += section.bytes, table += bytes_of(row);
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN, header.e_machine = EM_X86_64, header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header, header.e_shoff = file.size(), header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size()), header.e_shstrndx = header.e_shnum - 1;
  return file.replace(0, sizeof header, bytes_of(header)) + table;
}

Inputs elf_seeds() {
  Inputs libraries;
  for (const std::string& manifest : manifest_seeds()) libraries.push_back(small_library(manifest));
  return libraries;
}

const std::vector<std::string> kWords = {
    "\"kind\":",  "\"name\":", "\"entries\":", "\"fingerprint\":", "\"section\":", "\"section_form\":",
    "\"types\":", "\"api\":",  "\"aliases\":", "\"number\":",      "\"on\":",      "\"off\":",
    "{}",         "[]",        "null",         "\"optimizer\"",    "\"\"",         "\\u0000"};

}  // namespace

Target elf_target() {
  std::vector<std::string> words = kWords;
  for (const char* name : {".drivetrain.manifest", ".drivetrain.headers", ".note.gnu.build-id"}) words.push_back(name);
  return {"elf", "plugin libraries", read_elf, elf_seeds, words};
}
Target manifest_target() { return {"manifest", "manifests of plugins", read_manifest_text, manifest_seeds, kWords}; }

}  // namespace drivetrain::fuzz
