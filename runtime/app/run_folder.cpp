#include "app/run_folder.h"

#include <filesystem>

#include <drivetrain/error.h>

#include "state/new_file.h"

namespace drivetrain {
namespace fs = std::filesystem;

namespace {

constexpr const char* kFirstFile = "resolved.json";

Error holds_a_run(const std::string& path, const std::string& file) {
  return fail(ErrorCode::config, "output_dir ", path, " holds a run already (", file, "); runs are never overwritten. ",
              "Choose another with --set output_dir=FOLDER, or move it away");
}

}  // namespace

void check_run_folder(const std::string& path) {
  std::error_code unknown;  // a path that cannot be is told when the folder is created
  for (const char* file : {kFirstFile, "metrics.jsonl"})
    if (fs::exists(fs::path(path) / file, unknown)) {
      remove_unfinished(path, false);  // of that run, if it was killed while it wrote
      throw holds_a_run(path, file);
    }
}

void take_run_folder(const std::string& path, const std::string& resolved_json) {
  check_run_folder(path);  // a folder with metrics alone is a run as well
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw fail(ErrorCode::io, "cannot create output_dir ", path, ": ", error ? error.message() : "a file has that name",
               ". Choose another with --set output_dir=FOLDER");
  NewFile first(path + "/" + kFirstFile, resolved_json.size());
  first.write_at(0, resolved_json.data(), resolved_json.size());
  if (!first.commit_new()) throw holds_a_run(path, concat(kFirstFile, ", of a run that started at the same time"));
  remove_unfinished(path, true);
}

void write_text_file(const std::string& path, const std::string& text) {
  NewFile file(path, text.size());
  file.write_at(0, text.data(), text.size());
  file.commit();
}

}  // namespace drivetrain
