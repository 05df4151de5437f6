#include "drivetrain/outside.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/value.h>

#include "base/input_file.h"
#include "base/printable.h"
#include "base/trust.h"
#include "cli/commands.h"
#include "cli/usage_error.h"
#include "drivetrain/library.h"
#include "drivetrain/outside_program.h"

namespace drivetrain::program {

namespace fs = std::filesystem;

struct OutsideCommands::One {
  std::string name, path, problem;  // problem: why it is not used
  std::deque<std::string> texts;    // which the row refers to
  std::vector<cli::Option> options;
  cli::Command row;

  std::string_view keep(const std::string& text) { return texts.emplace_back(text); }
};

namespace {

constexpr const char* kPrefix = "drivetrain-";

// The programs of the installation that begin so and are no commands.
constexpr std::array kOwn = {"conformance", "load-libtorch"};

std::vector<std::string> folders(const std::vector<std::string>& plugin_paths) {
  std::vector<std::string> list = plugin_paths;
  const char* const path = std::getenv("DRIVETRAIN_PLUGIN_PATH");
  for (const std::string& folder : cli::split(path ? path : "", ':')) list.push_back(folder);
  list.push_back(fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "libexec/drivetrain");
  return list;
}

// NAME of drivetrain-NAME and drivetrain-NAME.so; "" for other files.
std::string name_of(const fs::directory_entry& entry) {
  std::string name = entry.path().filename();
  std::error_code unknown;
  if (!name.starts_with(kPrefix) || !entry.is_regular_file(unknown)) return "";
  const bool library = name.ends_with(".so");
  if (!library && (entry.status(unknown).permissions() & fs::perms::owner_exec) == fs::perms::none) return "";
  name = name.substr(std::string(kPrefix).size());
  if (library) name.resize(name.size() - 3);
  const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == std::string::npos;
  return plain && std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end() ? name : "";
}

std::string text_in(const Value& object, const std::string& key) {
  const Value* const value = object.find(key);
  return value ? value->as_string() : "";
}

void check_keys(const Value& object, const std::vector<std::string>& known) {
  for (const Value::Member& m : object.members())
    if (std::find(known.begin(), known.end(), m.key) == known.end())
      throw fail(ErrorCode::config, m.value.key_where.text(), "  there is no key \"", shown(m.key), "\" here");
}

}  // namespace

OutsideCommands::OutsideCommands(const std::vector<std::string>& plugin_paths) {
  std::vector<fs::path> seen;
  FolderTrust looked_at;
  for (const std::string& folder : folders(plugin_paths)) {
    std::error_code none;
    std::vector<fs::directory_entry> entries;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) entries.push_back(entry);
    std::sort(entries.begin(), entries.end());
    for (const fs::directory_entry& entry : entries) {
      const std::string name = name_of(entry);
      const fs::path real = fs::weakly_canonical(entry.path(), none);
      if (name.empty() || std::find(seen.begin(), seen.end(), real) != seen.end()) continue;
      seen.push_back(real);
      auto one = std::make_unique<One>();
      one->name = name, one->path = entry.path();
      one->row.name = one->keep(name), one->row.most = 100000;
      if (cli::find_command(name))
        one->problem = name + " is a command of the program itself";
      else
        one->problem = trust_problem(one->path, looked_at);
      try {
        describe(*one);
      } catch (const Error& e) {
        if (one->problem.empty()) one->problem = e.what();
      }
      all_.push_back(std::move(one));
    }
  }
  refuse_same_names(all_);
  for (const auto& one : all_)
    if (one->problem.empty()) rows_.push_back(one->row);
}

OutsideCommands::~OutsideCommands() = default;

void OutsideCommands::describe(One& one) {
  fs::path path = one.path;
  if (path.extension() == ".so") path.replace_extension();
  path += ".json";
  if (!fs::exists(path)) {
    one.row.summary = one.keep("a command of " + one.path + "; no " + path.filename().string() + " says what it does");
    return;
  }
  const Value told = parse_json(read_text(path, InputKind::file, "the description of a command"), path);
  check_keys(told, {"summary", "words", "options"});
  one.row.summary = one.keep(text_in(told, "summary"));
  one.row.words = one.keep(text_in(told, "words"));
  one.row.takes = cli::Takes::file;
  if (const Value* const options = told.find("options"))
    for (const Value& option : options->items()) {
      check_keys(option, {"name", "value", "help"});
      const std::string value = text_in(option, "value");
      one.options.push_back({.name = one.keep(text_in(option, "name")),
                             .value = one.keep(value),
                             .help = one.keep(text_in(option, "help")),
                             .takes = value.empty() ? cli::Takes::nothing : cli::Takes::text});
    }
  one.row.options = one.options;
}

// Which of two is meant nobody knows, so neither is used.
void OutsideCommands::refuse_same_names(const std::vector<std::unique_ptr<One>>& all) {
  std::vector<One*> usable;
  for (const auto& one : all)
    if (one->problem.empty()) usable.push_back(one.get());
  for (One* const one : usable)
    for (const One* const other : usable)
      if (one != other && one->name == other->name)
        one->problem = other->path + " has the same name; remove or rename one of them";
}

std::span<const cli::Command> OutsideCommands::rows() const { return rows_; }

std::vector<std::string> OutsideCommands::problems() const {
  std::vector<std::string> list;
  for (const auto& one : all_)
    if (!one->problem.empty()) list.push_back("not used: " + one->path + ": " + one->problem);
  return list;
}

const cli::Command* OutsideCommands::find(const std::string& name) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const cli::Command& one) { return one.name == name; });
  return row == rows_.end() ? nullptr : &*row;
}

bool OutsideCommands::has(const std::string& name) const {
  return std::any_of(all_.begin(), all_.end(), [&](const auto& one) { return one->name == name; });
}

int OutsideCommands::run(const std::string& name, const std::vector<std::string>& words) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->name == name; });
  if (found == all_.end()) throw UsageError("there is no command \"" + shown(name) + "\"");
  const One& one = **found;
  if (!one.problem.empty()) throw UsageError(one.path + " is not used: " + one.problem);
  return one.path.ends_with(".so") ? run_outside_library(name, one.path, words)
                                   : run_outside_program(name, one.path, words);
}

PathWords take_plugin_paths(const std::vector<std::string>& words) {
  PathWords taken;
  const std::string option = "--plugin-path", with_value = option + "=";
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      taken.others.insert(taken.others.end(), words.begin() + static_cast<ptrdiff_t>(i), words.end());
      break;
    }
    if (words[i] == option && i + 1 < words.size())
      taken.paths.push_back(words[++i]);
    else if (words[i].starts_with(with_value))
      taken.paths.push_back(words[i].substr(with_value.size()));
    else
      taken.others.push_back(words[i]);
  }
  return taken;
}

}  // namespace drivetrain::program
