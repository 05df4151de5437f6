// Token files of Megatron: their .idx, by the dataset and by `data verify`, and cached indices as NumPy arrays.
#include "dataset/megatron/index_file.h"

#include <algorithm>

#include "all.h"
#include "data_tools/token_file.h"
#include "dataset/megatron/npy_file.h"
#include "scratch.h"

namespace drivetrain::fuzz {
namespace {

constexpr int64_t kSome = 64;  // entries that are looked at

void read_entries(const megatron::IndexFile& index) {
  const int64_t sequences = std::min(index.sequences(), kSome), documents = std::min(index.documents(), kSome);
  for (int64_t i = 0; i < sequences; ++i) index.length(i), index.pointer(i);
  for (int64_t i = 0; i < documents; ++i) index.first_sequence(i);
  index.lengths(0, sequences);
  std::vector<int64_t> firsts = index.first_sequences(0, documents);
  if (!firsts.empty()) index.replace_by_pointers(firsts);
  for (int64_t i = 0; i < sequences; ++i) index.document_of(i);
  if (index.end() == 0) return;
  for (const int64_t byte : {int64_t{0}, index.end() / 2, index.end() - 1}) {
    const int64_t found = index.sequence_at(byte);
    FUZZ_CHECK(found >= 0 && found < index.sequences());
  }
  index.check_adjacent(0, std::min(index.end() - 1, int64_t{1} << 20));
}

// As `data verify` does it: documents only of files without problems.
void read_documents(const std::string& prefix) {
  const TokenFile file(prefix);
  const std::vector<std::string> problems = file.problems();
  FUZZ_CHECK(problems.size() <= 21);
  file.wrong_ids(300);
  if (!problems.empty()) throw fail(ErrorCode::io, problems.front());
  for (uint64_t i = 0; i < std::min<uint64_t>(file.documents(), kSome); ++i)
    FUZZ_CHECK(file.document(i, 100).size() == std::min<uint64_t>(file.document_length(i), 100));
}

void read_index(const std::string& input) {
  static const std::string bin = scratch_file("fuzz.bin", source_file("tests/golden/data/megatron_data/short.bin"));
  const std::string path = scratch_file("fuzz.idx", input);
  read_documents(path.substr(0, path.size() - 4));
  read_entries(megatron::IndexFile(path));
}

void read_npy(const std::string& input) {
  const megatron::NpyFile array(scratch_file("fuzz.npy", input));
  for (int64_t i = 0; i < std::min(array.count(), kSome); ++i) array.at(i);
  if (array.count() > 0) array.at(array.count() - 1);
}

Inputs index_seeds() { return {source_file("tests/golden/data/megatron_data/short.idx")}; }

Inputs npy_seeds() {
  const std::string prefix = "tests/golden/data/megatron_data/index/00000000000000000000000000000000-GPTDataset-train-";
  return {source_file(prefix + "document_index.npy"), source_file(prefix + "sample_index.npy"),
          source_file(prefix + "shuffle_index.npy")};
}

}  // namespace

Target token_index_target() {
  return {"token_index", "indices of token files (.idx)", read_index,
          index_seeds,   {std::string("MMIDIDX\0\0", 9)}, "fuzz."};
}
Target npy_target() {
  return {
      "npy",     "arrays of NumPy", read_npy, npy_seeds, {"'descr':", "'<i8'", "'<u4'", "'shape': (", ", )", "False"},
      "fuzz.npy"};
}

}  // namespace drivetrain::fuzz
