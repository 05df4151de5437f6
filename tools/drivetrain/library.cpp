#include "drivetrain/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <regex>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/proc_text.h>

#include "base/printable.h"
#include "base/trust.h"
#include "cli/usage_error.h"
#include "drivetrain/stack_trace.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;

std::string first_match(const std::string& text, const char* pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "";
}

std::string release_of_header(const std::string& text) {
  std::string release;
  for (const char* part : {"MAJOR", "MINOR", "PATCH"}) {
    const std::string number = first_match(text, ("TORCH_VERSION_" + std::string(part) + " +([0-9]+)").c_str());
    if (number.empty()) return "";
    release += (release.empty() ? "" : ".") + number;
  }
  return release;
}

// torch-2.11.0.dist-info beside the package
std::string release_of_package(const fs::path& parent) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    const std::string release = first_match(entry.path().filename().string(), "^torch-([0-9][^-]*)\\.dist-info$");
    if (!release.empty()) return release;
  }
  return "";
}

constexpr const char* kName = "libdrivetrain.so";

fs::path library_path(const std::string& name) {
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" / name;
}

// The folder that the user says, or "".
std::string chosen_folder() {
  const char* const chosen = std::getenv("DRIVETRAIN_TORCH");
  return chosen ? chosen : "";
}

// In a clone its script brings LibTorch, which is not looked for while the variable names another. An installed tree
// may lie on a machine that has nothing but Python's torch.
std::string remedy() {
  std::error_code unknown;
  const bool in_clone = fs::exists(library_path("../../../tools/quickstart"), unknown);
  const std::string quickstart = "run tools/quickstart once, which brings it";
  std::string first = in_clone ? quickstart + ", or set DRIVETRAIN_TORCH " : "set DRIVETRAIN_TORCH ";
  if (!chosen_folder().empty())
    first = "unset DRIVETRAIN_TORCH" + (in_clone ? " (if there is no LibTorch then either, " + quickstart + ")" : "") +
            ", or set it ";
  return "\n   " + first +
         "to the `torch` folder of a torch " DRIVETRAIN_TORCH_RELEASE
         " wheel; where python3 has that one:\n   export DRIVETRAIN_TORCH=$(python3 -c "
         "'import os, torch; print(os.path.dirname(torch.__file__))')";
}

// Whoever can write a library that is loaded here is this user.
void check_trust(const fs::path& libraries) {
  FolderTrust looked_at;
  for (const fs::directory_entry& entry : fs::directory_iterator(libraries)) {
    if (entry.path().filename().string().find(".so") == std::string::npos) continue;
    if (const std::string why = trust_problem(entry.path(), looked_at); !why.empty())
      throw UsageError("DRIVETRAIN_TORCH=" + libraries.parent_path().string() + " is not used: " + why +
                       "\n   a library that others can change could do all that you can");
  }
}

fs::path torch_folder() {
  const std::string chosen = chosen_folder();
  const fs::path folder = chosen.empty() ? DRIVETRAIN_TORCH_FOLDER : chosen;
  const std::string said = (chosen.empty() ? "the LibTorch of the build, " : "DRIVETRAIN_TORCH=") + folder.string();
  std::error_code failed;  // a folder that this user may not enter
  if (!fs::exists(folder / "lib/libtorch_cpu.so", failed))
    throw UsageError("no LibTorch at " + said + ": lib/libtorch_cpu.so is not there" +
                     (failed ? " (" + failed.message() + ")" : "") + remedy());
  const std::string release = torch_release(folder.string());
  if (release.substr(0, release.find('+')) != DRIVETRAIN_TORCH_RELEASE)
    throw UsageError("LibTorch at " + said + " is " + (release.empty() ? "of an unknown release" : release) +
                     "; this build needs " + DRIVETRAIN_TORCH_RELEASE + remedy());
  if (!chosen.empty()) check_trust(folder / "lib");
  return fs::absolute(folder);
}

void* open_library(const fs::path& path, const std::string& remedy, int visible = RTLD_GLOBAL) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | visible);
  const std::string reason = handle ? "" : dlerror();
  for (const char* memory : {"failed to map", "cannot allocate memory", "Cannot allocate memory"})
    if (reason.find(memory) != std::string::npos)
      throw OutOfMemory(
          "no memory to open a library: " + reason +
          "\n   raise the limit of address space (`ulimit -v`): a run takes 1 GB and what the model needs");
  if (!handle) throw UsageError("cannot open a library: " + reason + remedy);
  return handle;
}

const std::string kTogether =
    "\n   the program and what lies in its lib folder belong together: build or install all of it again";

// After LibTorch.
void* main_library() {
  const fs::path torch = torch_folder();
  // MKL's products have the same bits on any number of threads only if it is told so before it is loaded. Whoever sets
  // the variable knows better.
  setenv("MKL_CBWR", "AUTO,STRICT", 0);
  for (const char* part : {"libc10.so", "libtorch_cpu.so"}) open_library(torch / "lib" / part, remedy());
  return open_library(library_path(kName), kTogether);
}

void check_release(void* library, const std::string& path, const std::string& remedy) {
  const auto release = reinterpret_cast<const char* (*)()>(dlsym(library, "drivetrain_release"));
  if (!release) throw UsageError(path + " has no commands of this program: it does not say its release" + remedy);
  if (std::string(release()) != DRIVETRAIN_RELEASE)
    throw UsageError(path + " is of Drivetrain " + release() + ", the program of " + DRIVETRAIN_RELEASE + remedy);
}

// The library of the command's first word. It sees the insides of libdrivetrain.so, so both are of one build.
void* command_library(const std::string& word) {
  const fs::path path = library_path("drivetrain/commands/" + word + ".so");
  const bool built = fs::exists(library_path(kName)) && !fs::exists(path);
  void* const library =
      open_library(path, built ? "\n   it is in every whole build: ninja command_" + word : kTogether, RTLD_LOCAL);
  check_release(library, path, kTogether);
  return library;
}

using RunCommand = int (*)(const cli::Arguments&);
RunCommand what_runs(void* library, const std::string& name) {
  const auto run = reinterpret_cast<RunCommand>(dlsym(library, "drivetrain_run"));
  if (!run) throw UsageError("the library of " + name + " has nothing to run" + kTogether);
  return run;
}

// What the stack of a crash says of plugins.
void tell_calls(void* library) {
  tell_plugin_calls(reinterpret_cast<CurrentCall>(dlsym(library, "drivetrain_current_call")),
                    reinterpret_cast<CurrentCall>(dlsym(library, "drivetrain_any_call")));
  tell_device_errors(reinterpret_cast<DeviceError>(dlsym(library, "drivetrain_device_error")));
  tell_guarded_descriptors(reinterpret_cast<GuardsDescriptor>(dlsym(library, "drivetrain_guards_descriptor")));
}

}  // namespace

std::string torch_release(const std::string& folder) {
  const fs::path torch(folder);
  std::string release = release_of_header(proc_text(torch / "include/torch/headeronly/version.h"));
  if (release.empty()) release = first_match(proc_text(torch / "version.py"), "__version__ *= *['\"]([^'\"]+)");
  if (release.empty()) release = release_of_package(fs::weakly_canonical(torch).parent_path());
  return release;
}

void load_library() { main_library(); }

int run_in_library(const cli::Arguments& arguments) {
  void* const library = main_library();
  const std::string name(arguments.command().name);
  void* const commands = command_library(name.substr(0, name.find(' ')));
  const RunCommand run = what_runs(commands, name);
  tell_calls(library);
  const ExitWatch watch;
  return run(arguments);
}

int run_in_plain_library(const std::string& name, const cli::Arguments& arguments) {
  return what_runs(command_library(name), name)(arguments);
}

int run_outside_library(const std::string& name, const std::string& path, const std::vector<std::string>& words) {
  tell_calls(main_library());
  const std::string remedy = "\n   build it again with the headers of this release";
  void* const library = open_library(fs::absolute(path), remedy, RTLD_LOCAL);
  check_release(library, path, remedy);
  const auto run = reinterpret_cast<int (*)(int, const char* const*)>(dlsym(library, "drivetrain_command"));
  if (!run) throw UsageError(path + " has no function drivetrain_command" + remedy);
  std::vector<const char*> list;
  for (const std::string& word : words) list.push_back(word.c_str());
  try {
    return run(static_cast<int>(list.size()), list.data());
  } catch (const std::exception& e) {
    std::cout.flush();
    std::cerr << "drivetrain: error: " + name + " (" + one_line(path) + "): " + printable(e.what()) + "\n";
    return static_cast<int>(ErrorCode::plugin);
  }
}

}  // namespace drivetrain::program
