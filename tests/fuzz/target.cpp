#include "target.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "targets/all.h"

namespace drivetrain::fuzz {
namespace {

[[noreturn]] void failed(const Target& target, const std::string& how) {
  std::fprintf(stderr, "fuzz: the reader of %s (%s) %s\n", target.name, target.reads, how.c_str());
  std::abort();
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      json_target(),   json_line_target(),  elf_target(),           manifest_target(),      safetensors_target(),
      pickle_target(), torch_file_target(), checkpoints_target(),   sharded_target(),       token_index_target(),
      npy_target(),    tokenizer_target(),  token_pattern_target(), sentencepiece_target(),
  };
  return all;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : targets())
    if (name == target.name) return &target;
  return nullptr;
}

bool takes(const Target& target, const std::string& input) {
  try {
    target.read(input);
    return true;
  } catch (const Error& e) {
    const std::string message = e.what();
    if (e.code() == ErrorCode::internal) failed(target, "takes an input for a bug of its own: " + message);
    if (message.empty()) failed(target, "refuses without a word");
    if (message.find(target.place) == std::string::npos) failed(target, "does not name the file: " + message);
    return false;
  } catch (const std::exception& e) {
    failed(target, std::string("throws what is no Error: ") + e.what());
  } catch (...) {
    failed(target, "throws what is no exception");
  }
}

void broken(const char* promise, const char* file, int line) {
  std::fprintf(stderr, "fuzz: %s:%d: does not hold: %s\n", file, line, promise);
  std::abort();
}

}  // namespace drivetrain::fuzz
