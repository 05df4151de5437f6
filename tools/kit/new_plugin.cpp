#include "kit/new_plugin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

#include "base/printable.h"
#include "base/suggest.h"
#include "kit/kit_error.h"
#include "kit/templates.h"

namespace drivetrain::kit {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostName = 64;

void check_kind(const std::string& kind, const std::vector<std::string>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  throw KitError(Exit::usage, "new-plugin: there is no kind \"" + shown(kind) + "\"" + suggestion(kind, kinds));
}

void check_name(const std::string& name) {
  const bool letters = !name.empty() && name.size() <= kMostName && name[0] >= 'a' && name[0] <= 'z' &&
                       name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  if (letters) return;
  throw KitError(Exit::usage,
                 "new-plugin: \"" + shown(name) +
                     "\" cannot be a plugin's name\n   wanted 1 to 64 lower-case letters, digits and _, "
                     "with a letter first, such as my_plugin: it names the file, the class and the config's "
                     "\"type\"");
}

[[noreturn]] void cannot_write(const fs::path& path, int code) {
  throw KitError(Exit::io, "new-plugin: cannot write " + one_line(path.string()) + ": " + std::strerror(code) +
                               "\n   nothing was made; choose another folder with --dir");
}

void write_file(const fs::path& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) cannot_write(path, errno);
  int failure = 0;
  for (size_t done = 0; done < text.size() && failure == 0;) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n >= 0)
      done += static_cast<size_t>(n);
    else if (errno != EINTR)
      failure = errno;
  }
  if (::close(file) != 0 && failure == 0) failure = errno;  // some file systems say it here
  if (failure != 0) cannot_write(path, failure);
}

// A folder that goes with the object unless it was given its name.
class NewFolder {
 public:
  explicit NewFolder(const fs::path& folder) : folder_(folder) {
    std::string pattern = (folder.parent_path() / ("." + folder.filename().string() + ".XXXXXX")).string();
    if (!::mkdtemp(pattern.data())) cannot_write(folder, errno);
    made_ = pattern;
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    if (!made_.empty()) fs::remove_all(made_, ignored);
  }
  void write(const std::string& name, const std::string& text) const {
    const fs::path path = made_ / name;
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    if (failed) cannot_write(path, failed.value());
    write_file(path, text);
  }
  // In one moment; never over something that is there.
  void finish() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::chmod(made_.c_str(), 0777 & ~mask);
    if (::renameat2(AT_FDCWD, made_.c_str(), AT_FDCWD, folder_.c_str(), RENAME_NOREPLACE) != 0) {
      const bool unknown_here = errno == EINVAL || errno == ENOSYS;
      if (!unknown_here || ::rename(made_.c_str(), folder_.c_str()) != 0) cannot_write(folder_, errno);
    }
    made_.clear();
  }

 private:
  const fs::path folder_;
  fs::path made_;
};

fs::path folder_of(const std::string& dir, const std::string& name) {
  std::error_code unknown;
  const fs::path parent = fs::absolute(dir, unknown);
  if (!fs::is_directory(parent, unknown))
    throw KitError(Exit::usage,
                   "new-plugin: --dir " + one_line(dir) + " is no folder\n   make it first: mkdir -p " + one_line(dir));
  const fs::path folder = (parent / name).lexically_normal();
  if (fs::exists(fs::symlink_status(folder, unknown)))
    throw KitError(Exit::usage, "new-plugin: " + one_line(folder.string()) +
                                    " is there already, and nothing is overwritten\n   choose another name, another "
                                    "--dir, or move it away");
  return folder;
}

// As a shell takes it.
std::string quoted(const std::string& path) {
  const bool plain =
      path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%") ==
      std::string::npos;
  if (plain && !path.empty()) return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// A build tree has no package to build against: it is installed first.
std::string next_commands(const fs::path& folder, const PluginName& plugin) {
  const fs::path program = fs::read_symlink("/proc/self/exe"), prefix = program.parent_path().parent_path();
  std::error_code unknown;
  const bool installed = fs::exists(prefix / "lib/cmake/Drivetrain/DrivetrainConfig.cmake", unknown);
  const std::string at = installed ? prefix.string() : "PREFIX";
  const std::string build = quoted((folder / "build").string());
  const std::string library =
      quoted((folder / "build/lib/drivetrain/plugins" / (plugin.kind + "_" + plugin.name + ".so")).string());
  std::string text;
  if (!installed)
    text += "  cmake --install " + quoted(prefix.string()) + " --prefix PREFIX      # once, PREFIX: any folder\n";
  text += "  cmake -S " + quoted(folder.string()) + " -B " + build + " -DCMAKE_PREFIX_PATH=" + quoted(at) + "\n";
  text += "  cmake --build " + build + "\n";
  return text + "  " + (installed ? quoted(program.string()) : "PREFIX/bin/drivetrain") + " conformance " + library +
         "\n";
}

}  // namespace

int new_plugin(const cli::Arguments& arguments) {
  const std::string templates = templates_folder();
  const PluginName plugin{arguments.plain().at(0), arguments.plain().at(1)};
  check_kind(plugin.kind, kinds_of(templates));
  check_name(plugin.name);
  const fs::path folder = folder_of(arguments.text("--dir"), plugin.name);
  const std::map<std::string, std::string> files = files_of(templates, plugin);
  NewFolder made(folder);
  for (const auto& [name, text] : files) made.write(name, text);
  made.finish();
  std::cout << printable(plugin.kind + "/" + plugin.name + " is in " + folder.string() + ":");
  for (const auto& [name, text] : files) std::cout << " " << name;
  std::cout << "\nIt builds, passes the suite of its kind and trains as it is. Next:\n"
            << printable(next_commands(folder, plugin));
  return 0;
}

}  // namespace drivetrain::kit
