#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <drivetrain/safetensors.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>

#include "support/write_safetensors.h"
#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;

at::Tensor numbers(std::vector<int64_t> shape, at::ScalarType dtype) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return at::arange(n, at::TensorOptions().dtype(at::kFloat)).to(dtype).view(shape);
}

TEST(SafetensorsWrite, the_worked_example_of_the_format_has_these_bytes) {
  TempFolder folder;
  const at::Tensor zeros = at::zeros({2, 2}, at::TensorOptions().dtype(at::kInt));
  write_safetensors(folder / "a", {{"test", at::kInt, {2, 2}}}, {}, [&](const std::string&) { return zeros; });
  const std::string json = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";
  EXPECT_EQ(json.size(), 60u);
  EXPECT_EQ(read_bytes(folder / "a"), little_endian(64) + json + "    " + std::string(16, '\0'));
}

TEST(SafetensorsWrite, every_dtype_comes_back_aligned_and_in_the_reference_order) {
  using at::ScalarType;
  const std::vector<ScalarType> dtypes = {
      ScalarType::Bool,          ScalarType::Byte,   ScalarType::Char,   ScalarType::Float8_e5m2,
      ScalarType::Float8_e4m3fn, ScalarType::Short,  ScalarType::UInt16, ScalarType::Half,
      ScalarType::BFloat16,      ScalarType::Int,    ScalarType::UInt32, ScalarType::Float,
      ScalarType::ComplexFloat,  ScalarType::Double, ScalarType::Long,   ScalarType::UInt64};
  TempFolder folder;
  std::map<std::string, at::Tensor> tensors;
  std::vector<SafetensorsItem> items;
  std::vector<std::string> expected;
  for (const ScalarType dtype : dtypes) {
    const std::string name = c10::toString(dtype);
    tensors[name] = numbers({3}, dtype);
    items.push_back({name, dtype, {3}});
    expected.insert(expected.begin(), name);
  }
  write_safetensors(folder / "a", items, {{"z", "1"}, {"a", "2"}},
                    [&](const std::string& name) { return tensors[name]; });
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  EXPECT_EQ(file.names(), expected);
  EXPECT_EQ(file.metadata().front().first, "a");
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.dtype(name), tensor.scalar_type());
    EXPECT_EQ(std::memcmp(file.tensor(name).data_ptr(), tensor.data_ptr(), tensor.nbytes()), 0) << name;
  }
  // Every tensor is aligned for its elements: the data begin at a multiple of 8, and wide ones come first.
  const std::string bytes = read_bytes(folder / "a");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ(header % 8, 0u);
}

TEST(SafetensorsWrite, tensors_may_come_in_any_order_with_any_strides) {
  TempFolder folder;
  const at::Tensor a = numbers({3, 4}, at::kFloat).t(), scalar = numbers({}, at::kFloat), empty = at::zeros({0, 5});
  SafetensorsWriter writer(folder / "a", {{"a", at::kFloat, {4, 3}}, {"b", at::kFloat, {}}, {"c", at::kFloat, {0, 5}}},
                           {});
  writer.put("c", empty);
  writer.put("b", scalar);
  writer.put("a", a);
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  writer.finish();
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  EXPECT_TRUE(file.tensor("a").equal(a));
  EXPECT_EQ(file.shape("c"), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(SafetensorsWrite, names_are_escaped_as_json_wants) {
  TempFolder folder;
  const std::string name = "a\"b\\c/größe";
  write_safetensors(folder / "a", {{name, at::kFloat, {1}}}, {{"text", "two\nlines"}},
                    [&](const std::string&) { return at::zeros({1}); });
  EXPECT_TRUE(SafetensorsFile::open(folder / "a").contains(name));
}

TEST(SafetensorsWrite, an_unfinished_file_leaves_the_old_one_and_nothing_else) {
  TempFolder folder;
  write_bytes(folder / "a", "old");
  {
    SafetensorsWriter writer(folder / "a", {{"a", at::kFloat, {1}}}, {});
    EXPECT_HAS(error_of([&] { writer.finish(); }).text, "\"a\" never came");
    EXPECT_HAS(error_of([&] { writer.put("a", at::zeros({2})); }).text, "announced as F32 [1] and came as Float [2]");
    EXPECT_HAS(error_of([&] { writer.put("b", at::zeros({2})); }).text, "was not announced");
  }
  EXPECT_EQ(read_bytes(folder / "a"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(SafetensorsWrite, a_folder_that_is_not_there_is_named) {
  const Caught caught = error_of([] { SafetensorsWriter writer("/nowhere/at/all", {}, {}); });
  EXPECT_EQ(caught.code, ErrorCode::io);
  EXPECT_HAS(caught.text, "/nowhere/at/all: cannot create the file");
}

// Writes 1 MB where it does not fit.
void expect_no_room(const std::string& folder, const std::vector<std::string>& words) {
  const std::string path = folder + "/a.safetensors";
  const Caught caught = error_of([&] {
    write_safetensors(path, {{"a", at::kFloat, {262144}}}, {}, [](const std::string&) { return at::zeros({262144}); });
  });
  EXPECT_EQ(caught.code, ErrorCode::io);
  EXPECT_HAS(caught.text, path);
  for (const std::string& word : words) EXPECT_HAS(caught.text, word);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(SafetensorsWrite, a_file_size_limit_is_reported_and_nothing_is_left) {
  TempFolder folder;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit limit{65536, old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_no_room(folder.path(), {"1048656 bytes wanted", "ulimit -f"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
}

TEST(SafetensorsWrite, a_full_disk_is_reported_and_nothing_is_left) {
  TempFolder folder;
  // Only root may mount a small disk; everybody else has the test above, which takes the same path.
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) return;
  expect_no_room(folder.path(),
                 {"1048656 bytes wanted; ", "bytes are free there", "free some space or choose another folder"});
  ::umount2(folder.path().c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace drivetrain
