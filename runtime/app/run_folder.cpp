#include "app/run_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <drivetrain/error.h>

namespace drivetrain {
namespace fs = std::filesystem;

void check_run_folder(const std::string& path) {
  std::error_code unknown;  // a path that cannot be is told when the folder is created
  for (const char* file : {"resolved.json", "metrics.jsonl"})
    if (fs::exists(fs::path(path) / file, unknown))
      throw fail(ErrorCode::config, "output_dir ", path, " holds a run already (", file, "); runs are never overwritten. ",
                 "Choose another with --set output_dir=FOLDER, or move it away");
}

void create_run_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw fail(ErrorCode::io, "cannot create output_dir ", path, ": ", error ? error.message() : "a file has that name",
               ". Choose another with --set output_dir=FOLDER");
}

void write_text_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  const int error = errno;
  if (file) std::fclose(file);
  if (!written || std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
    throw fail(ErrorCode::io, "cannot write ", path, " (", text.size(),
               " bytes): ", std::strerror(written ? errno : error),
               "\n   free some space or choose another folder with --set output_dir=FOLDER");
  }
}

}  // namespace drivetrain
