#include <drivetrain/safetensors.h>

#include "all.h"
#include "scratch.h"

namespace drivetrain::fuzz {
namespace {

void read_safetensors(const std::string& input) {
  const auto file = SafetensorsFile::open(scratch_file("fuzz.safetensors", input));
  FUZZ_CHECK(file.data_bytes() <= input.size());
  uint64_t bytes = 0;
  for (const std::string& name : file.names()) {
    FUZZ_CHECK(file.contains(name));
    const at::Tensor whole = file.tensor(name);
    bytes += whole.nbytes();
    if (whole.dim() > 0 && whole.size(0) > 1)
      FUZZ_CHECK(file.rows(name, 1, 1).nbytes() * static_cast<size_t>(whole.size(0)) == whole.nbytes());
  }
  FUZZ_CHECK(bytes == file.data_bytes());
  for (const auto& [key, value] : file.metadata()) bytes += key.size() + value.size();
}

std::string file_of(const std::string& header, size_t data) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data, '\x3f');
}

Inputs safetensors_seeds() {
  return {
      file_of(
          R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})",
          26),
      file_of(
          R"({"__metadata__":{"format":"pt","k":"\u00e9"},"x.y":{"dtype":"I64","shape":[0,7],"data_offsets":[0,0]},)"
          R"("u8":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}}   )",
          5),
      file_of("{}", 0), source_file("tests/golden/data/attention/one_token.safetensors").substr(0, size_t{1} << 18)};
}

}  // namespace

Target safetensors_target() {
  return {"safetensors",
          "safetensors files",
          read_safetensors,
          safetensors_seeds,
          {"\"dtype\":", "\"shape\":", "\"data_offsets\":", "\"F32\"", "\"F8_E4M3\"", "\"BOOL\"", "\"I64\"", "[0,0]",
           "[18446744073709551615]", "{}", "__metadata__", "\\u0000", "[4294967296,4294967296]"},
          "fuzz.safetensors"};
}

}  // namespace drivetrain::fuzz
