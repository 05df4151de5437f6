// Hashes that say whether two runs are of the same config and of the same build.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <drivetrain/error.h>

#include "study/cell_plan.h"

namespace drivetrain::study {
namespace fs = std::filesystem;

std::string hash_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits;
}

std::string build_of(const std::string& program) {
  const fs::path lib = fs::path(program).parent_path().parent_path() / "lib";
  std::vector<fs::path> files = {lib / "libdrivetrain.so"};
  std::error_code unknown;
  for (const char* folder : {"drivetrain/commands", "drivetrain/plugins"})
    for (const auto& entry : fs::directory_iterator(lib / folder, unknown)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string hashes;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    hashes += path.filename().string() +
              hash_of(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  }
  return hash_of(hashes);
}

}  // namespace drivetrain::study
