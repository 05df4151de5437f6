#include <drivetrain/testkit/kit/plugins.h>

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace drivetrain::test {
namespace {

std::filesystem::path folder_of_the_library() {
  void* const library = ::dlopen("libdrivetrain.so", RTLD_LAZY | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (!library || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
    throw fail(ErrorCode::internal, "libdrivetrain.so is not open in this process");
  return std::filesystem::canonical(map->l_name).parent_path();
}

}  // namespace

const DrivetrainDescriptor& Plugins::open_descriptor(const std::string& file) {
  const std::lock_guard lock(mutex_);
  std::error_code failed;
  const std::string path = std::filesystem::canonical(file, failed).string();
  if (failed) throw fail(ErrorCode::plugin, file, ": ", failed.message());
  for (const auto& [known, descriptor] : opened_)
    if (known == path) return *descriptor;
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw fail(ErrorCode::plugin, file, " cannot be opened: ", ::dlerror());
  const auto* const symbol = static_cast<const DrivetrainDescriptor* const*>(::dlsym(library, "drivetrain_plugin"));
  if (!symbol || !*symbol || (*symbol)->magic != kDrivetrainMagic || (*symbol)->door != kDrivetrainEntryLayout)
    throw fail(ErrorCode::plugin, file,
               " exports no descriptor of this version; one source of a plugin ends with DRIVETRAIN_PLUGIN");
  opened_.emplace_back(path, *symbol);
  return **symbol;
}

std::vector<Plugins::Name> Plugins::open(const std::string& file) {
  const std::lock_guard lock(mutex_);
  const DrivetrainDescriptor& library = open_descriptor(file);
  // Before those of the folder, should they have the same name.
  std::stable_partition(opened_.begin(), opened_.end(), [&](const auto& known) { return known.second == &library; });
  std::vector<Name> names;
  for (uint32_t i = 0; i < library.entry_count; ++i)
    names.push_back({library.entries[i].kind, library.entries[i].name});
  return names;
}

std::vector<std::string> Plugins::names(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  open_all_of(kind);
  std::set<std::string> names;
  for (const auto& [file, library] : opened_)
    for (uint32_t i = 0; i < library->entry_count; ++i)
      if (kind == library->entries[i].kind) names.insert(library->entries[i].name);
  return {names.begin(), names.end()};
}

void Plugins::open_all_of(const std::string& kind) {
  std::vector<std::string> files;
  std::error_code failed;  // without a folder there are none in it
  for (const auto& file : std::filesystem::directory_iterator(folder_, failed))
    if (file.path().extension() == ".so" && file.path().stem().string().starts_with(kind + "_"))
      files.push_back(file.path().string());
  for (const std::string& file : files) open_descriptor(file);
}

const DrivetrainEntry* Plugins::find(const std::string& kind, const std::string& name) const {
  for (const auto& [file, library] : opened_)
    for (uint32_t i = 0; i < library->entry_count; ++i)
      if (kind == library->entries[i].kind && name == library->entries[i].name) return &library->entries[i];
  return nullptr;
}

const DrivetrainEntry& Plugins::entry(const std::string& kind, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const DrivetrainEntry* found = find(kind, name);
  const std::string file = concat(folder_, "/", kind, "_", name, ".so");
  if (!found && std::filesystem::exists(file)) open_descriptor(file), found = find(kind, name);
  if (!found) open_all_of(kind), found = find(kind, name);  // a library may offer several
  if (!found)
    throw fail(ErrorCode::plugin, kind, "/", name, " is not there: no library that was opened offers it, nor one in ",
               folder_);
  return *found;
}

std::vector<std::string> Plugins::outside_folders() {
  const std::lock_guard lock(mutex_);
  std::set<std::string> folders;
  for (const auto& [file, library] : opened_) folders.insert(std::filesystem::path(file).parent_path().string());
  folders.erase(folder_);
  return {folders.begin(), folders.end()};
}

const OptionTable& Plugins::options(const std::string& kind, const std::string& name) {
  return *static_cast<const OptionTable*>(entry(kind, name).options());
}

std::shared_ptr<Plugin> Plugins::create(const std::string& kind, const std::string& name, const Value& options,
                                        const Services& services) {
  const DrivetrainEntry& found = entry(kind, name);
  Problems problems;
  const auto parsed =
      static_cast<const OptionTable*>(found.options())->parse(options, concat(kind, "/", name), "params", problems);
  problems.throw_if_any();
  const CreateArgs args{parsed.get(), &services};
  auto* const object = static_cast<Plugin*>(found.create(&args));
  if (!object) throw fail(ErrorCode::plugin, "in ", kind, "/", name, ", create: gave no object");
  return std::shared_ptr<Plugin>(object);
}

Plugins& installed_plugins() {
  static auto* const plugins =
      new Plugins(folder_of_the_library() / "drivetrain" / "plugins");  // as libraries, to the end
  return *plugins;
}

std::string testkit_library(const std::string& name) {
  return folder_of_the_library() / "drivetrain" / "testkit" / (name + ".so");
}

std::string installed_program() { return folder_of_the_library().parent_path() / "bin" / "drivetrain"; }

}  // namespace drivetrain::test
