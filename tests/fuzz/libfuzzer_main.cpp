// The readers under libFuzzer, which brings its own main: `fuzz_libfuzzer --target=NAME CORPUS [libFuzzer's options]`.
// `fuzz_libfuzzer --write-seeds=FOLDER` writes what each reader takes to FOLDER/NAME/ and its words to
// FOLDER/NAME.dict.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "target.h"

namespace drivetrain::fuzz {
namespace {

const Target* chosen = nullptr;

std::string dictionary_line(const std::string& word) {
  std::string line = "\"";
  char hex[8];
  for (const char c : word) {
    std::snprintf(hex, sizeof hex, "\\x%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    line += hex;
  }
  return line + "\"\n";
}

void write_seeds(const std::string& folder) {
  for (const Target& target : targets()) {
    const std::string place = folder + "/" + target.name;
    std::filesystem::create_directories(place);
    size_t number = 0;
    for (const std::string& input : target.seeds())
      std::ofstream(place + "/seed-" + std::to_string(number++), std::ios::binary) << input;
    std::ofstream words(place + ".dict");
    for (const std::string& word : target.words) words << dictionary_line(word);
    std::printf("%s\n", target.name);
  }
}

}  // namespace
}  // namespace drivetrain::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace drivetrain::fuzz;
  constexpr std::string_view kTarget = "--target=", kSeeds = "--write-seeds=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view word = (*argv)[i];
    if (word.starts_with(kSeeds)) write_seeds(std::string(word.substr(kSeeds.size()))), std::exit(0);
    if (word.starts_with(kTarget)) chosen = find_target(word.substr(kTarget.size()));
  }
  if (!chosen)
    std::fprintf(stderr, "fuzz_libfuzzer: --target=NAME is missing, or there is no such reader\n"), std::exit(2);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace drivetrain::fuzz;
  takes(*chosen, std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
