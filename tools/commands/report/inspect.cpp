#include "report/inspect.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <drivetrain/error.h>
#include "base/printable.h"
#include "base/suggest.h"
#include "plugin/kinds.h"
#include "plugin/open.h"

namespace drivetrain {
namespace {

struct InspectRequest {
  std::string what;  // "", a kind, kind/name or a file
  bool json = false, schema = false;
};

bool names_a_file(const std::string& what) {
  const std::filesystem::path path(what);
  std::error_code ignored;
  return path.extension() == ".so" || std::filesystem::is_regular_file(path, ignored);
}

// What only the open library can show is among the reasons: no door, other entries, option tables that contradict
// themselves. A file that is refused before is not opened.
std::shared_ptr<const PluginFile> check_one_file(const InspectRequest& r, const SearchPath& search) {
  const auto file = inspect_file(r.what, "command line", search);
  if (!file->problem.empty()) return file;
  try {
    open_library(file);
    return file;
  } catch (const Error& e) {
    auto refused = std::make_shared<PluginFile>(*file);
    refused->problem = e.what();
    return refused;
  }
}

int inspect_one_file(const InspectRequest& r, const SearchPath& search) {
  const auto file = check_one_file(r, search);
  if (r.json)
    std::cout << inspect_file_json(*file).to_json(2) << '\n';
  else
    std::cout << printable(inspect_file_text(*file));
  return file->problem.empty() ? 0 : static_cast<int>(ErrorCode::plugin);
}

void check_kind(const std::string& kind) {
  if (is_kind(kind)) return;
  std::vector<std::string> kinds;
  for (const KindRule& rule : kind_rules()) kinds.push_back(rule.kind);
  throw fail(ErrorCode::config, "inspect: there is no kind \"", shown(kind), "\"", suggestion(kind, kinds));
}

// JSON Schema of one section, or of every usable plugin's by its id.
Value schemas(const Registry& registry, const std::string& kind) {
  Value all = Value::object();
  for (const Found& found : registry.found())
    if (found.state == Found::usable && (kind.empty() || found.entry.kind == kind))
      all.set(found.entry.id(), registry.options(found.entry.kind, found.entry.name).schema());
  return all;
}

}  // namespace

int inspect_command(const cli::Arguments& arguments) {
  const std::vector<std::string>& plain = arguments.plain();
  const InspectRequest r{plain.empty() ? "" : plain.front(), arguments.has("--json"), arguments.has("--schema")};
  const char* const environment = std::getenv("DRIVETRAIN_PLUGIN_PATH");
  const SearchPath search = SearchPath::standard({}, arguments.all("--plugin-path"), environment ? environment : "");
  if (!r.what.empty() && names_a_file(r.what)) return inspect_one_file(r, search);

  const size_t slash = r.what.find('/');
  const std::string kind = r.what.substr(0, slash);
  if (!kind.empty()) check_kind(kind);
  const Registry registry(search);
  if (slash == std::string::npos) {
    if (r.schema)
      std::cout << schemas(registry, kind).to_json(2) << '\n';
    else if (r.json)
      std::cout << inspect_table_json(registry, kind).to_json(2) << '\n';
    else
      std::cout << printable(inspect_table(registry, kind));
    return 0;
  }
  const Found& found = registry.entry(kind, r.what.substr(slash + 1));
  if (r.schema)
    std::cout << registry.options(kind, found.entry.name).schema().to_json(2) << '\n';
  else if (r.json)
    std::cout << inspect_entry_json(registry, found).to_json(2) << '\n';
  else
    std::cout << printable(inspect_entry(registry, found));
  return 0;
}

}  // namespace drivetrain
