#include "plugin/open.h"

#include <boost/dll/import.hpp>
#include <boost/dll/shared_library.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <set>

#include <drivetrain/error.h>
#include "base/printable.h"
#include "base/trust.h"
#include "config/table_check.h"
#include "plugin/private_symbols.h"
#include "plugin_calls/plugin_call.h"

// In the variant that tools/bench/plugin_cost measures against: the alias of a plugin whose code is linked in, by the
// stem of its file. Null in every other library.
extern "C" __attribute__((weak)) const void* drivetrain_linked_plugin(const char* library);

namespace drivetrain {
namespace {

constexpr const char* kDoorName = "drivetrain_plugin";

struct OpenLibraries {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const OpenLibrary>> libraries;  // by real path and digest
};
OpenLibraries& open_libraries() {
  static OpenLibraries* const leaked = new OpenLibraries;
  return *leaked;
}

Error refused(const PluginFile& file, const std::string& why) {
  return fail(ErrorCode::plugin, one_line(std::filesystem::path(file.path).filename().string()), " refused: ", why,
              "\n  file    ", file.shown());
}

// While a library is opened, what its constructors print goes to stderr: stdout may be a command's result.
class StdoutAside {
 public:
  StdoutAside() : kept_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) {
    std::cout.flush(), std::fflush(stdout);
    if (kept_ >= 0) ::dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ~StdoutAside() {
    if (kept_ < 0) return;
    std::cout.flush(), std::fflush(stdout);
    ::dup2(kept_, STDOUT_FILENO);
    ::close(kept_);
  }
  StdoutAside(const StdoutAside&) = delete;
  StdoutAside& operator=(const StdoutAside&) = delete;

 private:
  const int kept_;
};

// The path to open: the file itself, or a sealed copy of it where plugins.allow asks for certain bytes.
std::string bytes_to_open(const PluginFile& file) {
  if (file.allowed_sha256.empty()) return file.path;
  const SealedCopy copy = seal(file.path);
  if (copy.sha256 != file.allowed_sha256)
    throw refused(file, concat("plugins.allow wants other bytes\n  wanted  sha256 ", file.allowed_sha256,
                               "\n  found   sha256 ", copy.sha256));
  return copy.path;
}

// What is inside of libdrivetrain.so is for the commands of the same build.
void check_symbols(const PluginFile& file) {
  const std::vector<std::string> insides = private_symbols(file.path);
  if (insides.empty()) return;
  throw refused(
      file, concat("it links insides of libdrivetrain.so, which change with every build\n  symbol  ",
                   one_line(insides.front()), insides.size() > 1 ? concat(" and ", insides.size() - 1, " more") : "",
                   "\n  remedy  use what the headers of the contract have"));
}

void check_entries_whole(const PluginFile& file, const DrivetrainDescriptor& d) {
  std::set<std::string> names;
  for (uint32_t i = 0; i < d.entry_count; ++i) {
    const DrivetrainEntry& entry = d.entries[i];
    if (entry.struct_size != sizeof(DrivetrainEntry) || !entry.kind || !entry.name || !entry.options || !entry.create)
      throw refused(file, concat("entry ", i + 1, " of its descriptor is damaged"));
    const std::string id = concat(entry.kind, "/", entry.name);
    if (!names.insert(id).second) throw refused(file, concat("its code offers ", shown(id), " twice"));
  }
}

// An option that the manifest names and the table does not have: a user would be told of a key that is not in the
// config, or that it has no effect.
std::string unknown_in_manifest(const PluginFile& file, const DrivetrainEntry& entry, const OptionTable& table) {
  for (const ManifestEntry& told : file.manifest.entries) {
    if (told.kind != entry.kind || told.name != entry.name) continue;
    for (const std::string& option : options_of_form(told.form))
      if (!table.find(option))
        return concat("the forms of its section \"", shown(told.section), "\" use the option \"", shown(option),
                      "\", which it does not have; correct NUMBER, ON or OFF of drivetrain_add_plugin");
    for (const std::string& option : told.same_bits)
      if (!table.find(option))
        return concat("\"", shown(option), "\" of its SAME_BITS is no option; correct it in drivetrain_add_plugin");
  }
  return "";
}

// The table of every entry, judged once for all who will use it. It is the plugin's code that makes it.
void check_tables(const PluginFile& file, const DrivetrainDescriptor& d) {
  for (uint32_t i = 0; i < d.entry_count; ++i) {
    const std::string id = concat(d.entries[i].kind, "/", d.entries[i].name);
    std::string problem;
    try {
      const void* const table = d.entries[i].options();
      problem = table ? contradiction_in(*static_cast<const OptionTable*>(table)) : "there is none";
      if (problem.empty()) problem = unknown_in_manifest(file, d.entries[i], *static_cast<const OptionTable*>(table));
    } catch (const std::exception& e) {
      problem = concat("making it failed: ", e.what());
    } catch (...) {
      problem = "making it failed: threw something that is no exception";
    }
    if (!problem.empty()) throw refused(file, concat("the option table of ", id, " is wrong: ", problem));
  }
}

void check_entries(const PluginFile& file, const OpenLibrary& library) {
  const DrivetrainDescriptor& d = *library.descriptor;
  if (d.entry_count == 0 || !d.entries) throw refused(file, "it offers nothing: its descriptor has no entries");
  check_entries_whole(file, d);
  if (d.entry_count != file.manifest.entries.size())
    throw refused(file, concat("its manifest lists ", file.manifest.entries.size(), " entries, the code has ",
                               d.entry_count, "; name them all with ENTRIES of drivetrain_add_plugin"));
  for (const ManifestEntry& entry : file.manifest.entries)
    if (!library.find(entry.kind, entry.name))
      throw refused(file, concat("its manifest promises ", entry.id(), ", the code offers ", d.entries[0].kind, "/",
                                 d.entries[0].name, d.entry_count > 1 ? " and others" : "",
                                 "; names in drivetrain_add_plugin and DRIVETRAIN_PLUGIN must agree"));
}

void check_descriptor(const PluginFile& file, const OpenLibrary& library) {
  const DrivetrainDescriptor* d = library.descriptor;
  if (!d) throw refused(file, "its descriptor is missing");
  if (d->magic != kDrivetrainMagic || d->struct_size != sizeof(DrivetrainDescriptor))
    throw refused(file, "its descriptor is damaged: magic number or size is wrong");
  if (d->door != kDrivetrainEntryLayout)
    throw refused(file, concat("made for another door version\n  door    plugin ", d->door, "    runtime ",
                               kDrivetrainEntryLayout, "    must match"));
  if (!d->manifest || file.manifest_text != d->manifest)
    throw refused(file, "its manifest changed between reading and opening, or its code carries another one");
  check_entries(file, library);
  check_tables(file, *d);
}

std::shared_ptr<const OpenLibrary> open_new(const std::shared_ptr<const PluginFile>& file) {
  auto library = std::make_shared<OpenLibrary>();
  library->file = file;
  // A constructor that ends the process, or throws where nobody can catch it, is named.
  const std::string name = std::filesystem::path(file->path).filename().string();
  const CurrentCall current({.id = name, .hook = "constructors of the library", .kind = ""});
  const StdoutAside aside;
  const std::string stem = std::filesystem::path(file->path).stem().string();
  if (const void* const linked = drivetrain_linked_plugin ? drivetrain_linked_plugin(stem.c_str()) : nullptr) {
    library->descriptor = static_cast<const DrivetrainDescriptor*>(linked);
    library->handle = std::shared_ptr<const void>(linked, [](const void*) {});
    check_descriptor(*file, *library);
    return library;
  }
  check_symbols(*file);
  try {
    using boost::dll::load_mode::type;
    const auto mode = static_cast<type>(boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
    boost::dll::shared_library opened(bytes_to_open(*file), mode);
    if (!opened.has(kDoorName))
      throw refused(*file,
                    "its source has no DRIVETRAIN_PLUGIN(KIND, NAME, CLASS); one source of a plugin ends with it");
    auto descriptor = boost::dll::import_alias<const DrivetrainDescriptor>(std::move(opened), kDoorName);
    library->descriptor = descriptor.get();
    library->handle = std::shared_ptr<const void>(descriptor.get(), [descriptor](const void*) {});
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {  // what the dynamic linker said
    throw refused(
        *file,
        concat("it cannot be opened: ", e.what(),
               "\n  remedy  `drivetrain doctor --plugin FILE` says what is missing, and where it was looked for"));
  }
  check_descriptor(*file, *library);
  return library;
}

}  // namespace

const DrivetrainEntry* OpenLibrary::find(const std::string& kind, const std::string& name) const {
  for (uint32_t i = 0; i < descriptor->entry_count; ++i)
    if (kind == descriptor->entries[i].kind && name == descriptor->entries[i].name) return &descriptor->entries[i];
  return nullptr;
}

std::shared_ptr<const OpenLibrary> open_library(const std::shared_ptr<const PluginFile>& file) {
  if (!file->problem.empty()) throw fail(ErrorCode::plugin, file->problem);
  std::error_code failed;
  const std::string key = std::filesystem::canonical(file->path, failed).string() + "\n" + file->allowed_sha256;
  const std::lock_guard lock(open_libraries().mutex);
  auto& place = open_libraries().libraries[key];
  if (!place) place = open_new(file);
  return place;
}

}  // namespace drivetrain
