// toolkit/torch_files: what is written is read back, and no damage to a file does more than an Error.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <random>

#include <drivetrain/toolkit/torch_files/pickle_value.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include <drivetrain/testkit/kit/temp_folder.h>

namespace {

// The largest piece of memory that was asked for since it was set to 0.
std::atomic<size_t> largest{0};

}  // namespace

__attribute__((noinline)) void* operator new(size_t bytes) {
  size_t before = largest.load();
  while (bytes > before && !largest.compare_exchange_weak(before, bytes)) {
  }
  if (void* place = std::malloc(bytes ? bytes : 1)) return place;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* place) noexcept { std::free(place); }
__attribute__((noinline)) void operator delete(void* place, size_t) noexcept { std::free(place); }

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;
const std::string kGolden = std::string(DRIVETRAIN_GOLDEN_DIR) + "/deepspeed_checkpoints";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct TorchFiles : ::testing::Test {
  std::string path(const std::string& name) const { return temporary_.path() + "/" + name; }
  std::string refusal(const std::string& file) const {
    try {
      TorchFile::open(file);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  }
  const TempFolder temporary_;
};

TEST_F(TorchFiles, values_and_tensors_come_back) {
  std::vector<std::pair<TorchValue, TorchValue>> members;
  std::vector<at::Tensor> tensors;
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
    tensors.push_back(at::arange(30, at::TensorOptions(dtype)).view({5, 2, 3}));
    members.emplace_back(concat("t", tensors.size()), tensors.back());
  }
  members.emplace_back("scalar", at::scalar_tensor(3));
  members.emplace_back("empty", at::arange(0).view({0, 4}));
  const std::vector<int64_t> integers{0,  1,     255,        256,          65536,         -1,
                                      -3, -1000, 2147483647, 2147483648ll, -2147483649ll, 1ll << 62};
  members.emplace_back("integers", TorchValue::list(TorchValue::List(integers.begin(), integers.end())));
  members.emplace_back("real", -0.1);
  members.emplace_back("text", "Ġ ü");
  members.emplace_back("yes", true);
  members.emplace_back("none", TorchValue());
  members.emplace_back("size", TorchValue::size({4, 5}));
  members.emplace_back("object", TorchValue::object(TorchValue::global("a.b", "C"), TorchValue::dict({{"x", 7}})));
  write_torch_file(path("a.pt"), TorchValue::dict(members));

  const auto file = TorchFile::open(path("a.pt"));
  const PickleTree& tree = file->tree();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TorchTensor found = file->tensor(tree.at(file->root(), concat("t", i + 1)), "t");
    EXPECT_EQ(found.dtype, tensors[i].scalar_type());
    EXPECT_TRUE(at::equal(file->read(found), tensors[i])) << i;
    EXPECT_TRUE(at::equal(file->read(found, 7, 11), tensors[i].view({-1}).narrow(0, 7, 11))) << i;
  }
  EXPECT_EQ(file->number(tree.at(file->root(), "scalar"), "scalar"), 3);
  EXPECT_EQ(file->tensor(tree.at(file->root(), "empty"), "empty").shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(tree.integers(tree.at(file->root(), "integers"), "integers"), integers);
  EXPECT_EQ(tree.real(tree.at(file->root(), "real"), "real"), -0.1);
  EXPECT_EQ(tree.text(tree.at(file->root(), "text"), "text"), "Ġ ü");
  EXPECT_EQ(tree.integer(tree.at(file->root(), "yes"), "yes"), 1);
  EXPECT_EQ(tree.at(file->root(), "none").kind, PickleNode::Kind::none);
  EXPECT_EQ(tree.integers(tree.at(file->root(), "size"), "size"), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(tree.integer(tree.at(tree.at(file->root(), "object"), "x"), "x"), 7);
  EXPECT_TRUE(file->verify().empty());
}

TEST_F(TorchFiles, an_object_does_no_harm_until_its_value_is_asked_for) {
  // os.system("x"), as an attack would write it
  const TorchValue attack = TorchValue::call(TorchValue::global("os", "system"), {"x"});
  write_torch_file(path("a.pt"), TorchValue::dict({{"attack", attack}, {"n", 1}}));
  const auto file = TorchFile::open(path("a.pt"));
  EXPECT_EQ(file->tree().integer(file->tree().at(file->root(), "n"), "n"), 1);
  try {
    file->tensor(file->tree().at(file->root(), "attack"), "the weights");
    FAIL();
  } catch (const Error& e) {
    for (const char* word : {"a.pt", "byte", "the weights", "os system"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << " in " << e.what();
  }
}

TEST_F(TorchFiles, what_is_no_such_file_is_told_apart) {
  const auto expect = [&](const std::string& bytes, const std::string& word) {
    write_bytes(path("x.pt"), bytes);
    EXPECT_NE(refusal(path("x.pt")).find(word), std::string::npos) << word << " in " << refusal(path("x.pt"));
  };
  expect("", "no zip archive");
  expect(std::string(1000, 'x'), "directory of the zip archive is missing");
  EXPECT_NE(refusal(path("absent.pt")).find("absent.pt"), std::string::npos);
  write_torch_file(path("a.pt"), TorchValue::dict({{"n", at::arange(64)}}));
  const std::string whole = bytes_of(path("a.pt"));
  expect(whole.substr(0, whole.size() - 1), "directory of the zip archive is missing");
  std::string other = whole;
  other[other.find("_rebuild_tensor_v2")] = 'X';
  expect(other, "CRC-32");
  // Method 8 in the directory's first entry: compressed.
  other = whole;
  other[other.find("PK\x01\x02") + 10] = 8;
  expect(other, "compressed");
}

TEST_F(TorchFiles, pickles_that_cannot_be_are_refused_with_their_byte) {
  const auto refused = [](const std::string& pickle) -> std::string {
    try {
      PickleTree(pickle, "FILE", 100);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  for (const std::string& pickle :
       {std::string("\x80\x02"), std::string("\x80\x06N."), std::string("N"), std::string("NN."), std::string("."),
        std::string("N.N"), std::string("h\x05."), std::string("t."), std::string("K."),
        std::string("X\xff\xff\xff\x7f."), std::string("NNa."), std::string("]N\x86R."), std::string("(NNN}u."),
        std::string("i\n\n."), std::string("\x8b\xff\xff\xff\xff."), std::string("(l(", 3)})
    EXPECT_NE(refused(pickle).find("FILE: at byte 10"), std::string::npos) << refused(pickle);
  EXPECT_EQ(refused("]."), "nothing was thrown");
}

// The end of such a file is looked for in its last 64 KiB, which may well begin within zeros.
TEST_F(TorchFiles, large_tensors_of_zeros_are_values_like_others) {
  const at::Tensor zeros = at::zeros({100000});
  write_torch_file(path("a.pt"), TorchValue::dict({{"zeros", zeros}}));
  const auto file = TorchFile::open(path("a.pt"));
  EXPECT_TRUE(at::equal(file->read(file->tensor(file->tree().at(file->root(), "zeros"), "zeros")), zeros));
}

// A pickle says once what it has, and uses it again and again in few bytes.
TEST_F(TorchFiles, a_small_pickle_does_not_become_large_by_using_a_part_again) {
  const auto kept = [](const std::string& value) { return value + "q" + std::string(1, '\0') + "0"; };
  const auto many = [](const std::string& part) {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += part;
    return text;
  };
  const std::string again = std::string("h") + '\0';
  const std::string long_text = "X" + std::string("\0\0\1\0", 4) + std::string(65536, 'x');
  const std::string long_name = kept(long_text) +
                                many(again + again +
                                     "\x93"
                                     "0") +
                                "N.";
  const std::string arguments = kept("(" + many("NNNNNNNNNN") + "t") +
                                many("ca\nb\n" + again +
                                     "R"
                                     "0") +
                                "N.";
  for (const std::string& pickle : {long_name, arguments}) {
    try {
      PickleTree(pickle, "FILE");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("FILE: at byte"), std::string::npos) << e.what();
    }
  }
}

// A folder may have a file per parameter and moment, and a process may often open 1024 only.
TEST_F(TorchFiles, plain_data_becomes_a_value_and_what_is_large_or_deep_none) {
  write_torch_file(
      path("a.pt"),
      TorchValue::dict({{"a", 1},
                        {"b", TorchValue::tuple({1.5, "x", TorchValue()})},
                        {"c", TorchValue::dict({{"d", true}, {7, 8}})},
                        {"class", TorchValue::object(TorchValue::global("m", "C"), TorchValue::dict({}))}}));
  const auto file = TorchFile::open(path("a.pt"));
  EXPECT_EQ(*plain_value(file->root()), parse_json(R"({"a": 1, "b": [1.5, "x", null], "c": {"d": true}})", "test"));
  std::string nested = "K\x01";  // each list has the one before twenty times
  for (char level = 1; level <= 6; ++level) {
    std::string list = "](" + nested + "q" + level;
    for (int i = 0; i < 19; ++i) list += std::string("h") + level;
    nested = list + "e";
    if (level == 2) {
      EXPECT_EQ(plain_value(PickleTree("\x80\x02" + nested + ".", "FILE").root())->items().size(), 20u);
    }
  }
  EXPECT_FALSE(plain_value(PickleTree("\x80\x02" + nested + ".", "FILE").root()));
  std::string deep = "K\x01";
  for (int level = 0; level < 9; ++level) deep = "](" + deep + "e";
  EXPECT_FALSE(plain_value(PickleTree("\x80\x02" + deep + ".", "FILE").root()));
}

TEST_F(TorchFiles, more_of_them_can_be_read_than_a_process_may_have_open) {
  write_torch_file(path("a.pt"), TorchValue::dict({{"n", at::arange(64)}}));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {320, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<std::shared_ptr<const TorchFile>> files;
  for (int i = 0; i < 400; ++i) files.push_back(TorchFile::open(path("a.pt")));
  for (const auto& file : files)
    EXPECT_TRUE(at::equal(file->read(file->tensor(file->tree().at(file->root(), "n"), "n")), at::arange(64)));
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(TorchFiles, sizes_beside_a_zero_do_not_overflow) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, kLarge, kLarge}, {kLarge, kLarge, 0}})
    EXPECT_THROW(TorchCheckpoint("FOLDER").add("t", shape, at::kFloat), Error);
  TorchCheckpoint("FOLDER").add("t", {0, kLarge}, at::kFloat);
}

// Every file of the golden folders, with bytes flipped, cut out or put in, and truncated: what is read is either
// refused with an Error, or what it was, or (where no checksum covers it: the zip's own headers) harmless. Seeded.
TEST_F(TorchFiles, damage_is_an_error_and_never_more) {
  std::mt19937 random(3);
  const auto pick = [&](size_t below) { return static_cast<size_t>(random() % std::max<size_t>(below, 1)); };
  int refused = 0, read = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kGolden)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".pt") && name != ".metadata") continue;
    const std::string whole = bytes_of(entry.path().string());
    for (int i = 0; i < 80; ++i) {
      std::string bytes = whole;
      for (size_t n = 1 + pick(3); n > 0; --n) {
        const size_t at = i % 2 ? pick(bytes.size()) : pick(std::min<size_t>(bytes.size(), 6000));
        switch (pick(4)) {
          case 0:
            bytes.resize(at);
            break;
          case 1:
            bytes.erase(at, 1 + pick(9));
            break;
          default:
            if (!bytes.empty()) bytes[at % bytes.size()] = static_cast<char>(pick(256));
        }
      }
      largest = 0;
      try {
        if (name == ".metadata") {
          const PickleTree tree(bytes, "FILE");
          tree.pairs(tree.at(tree.root(), "storage_data"), "storage_data");
        } else {
          write_bytes(path("x.pt"), bytes);
          const auto file = TorchFile::open(path("x.pt"));
          for (const auto& [key, value] : file->tree().pairs(file->root(), "root"))
            if (TorchFile::is_tensor(*value)) file->read(file->tensor(*value, "value"));
        }
        ++read;
      } catch (const Error& e) {
        EXPECT_TRUE(e.code() == ErrorCode::checkpoint) << e.what();
        ++refused;
      }
      EXPECT_LE(largest.load(), 64 * whole.size() + 65536) << name << " " << i;
    }
    // Without checksums: the pickle itself, flipped.
    if (name == ".metadata") continue;
    const ZipArchive archive(std::make_shared<const StoredFile>(entry.path().string()), 0, whole.size());
    for (const auto& [record, place] : archive.records()) {
      if (!record.ends_with("data.pkl")) continue;
      const std::string pickle = archive.text(place, 1 << 20);
      for (int i = 0; i < 250; ++i) {
        std::string bytes = pickle;
        for (size_t n = 1 + pick(3); n > 0; --n) bytes[pick(bytes.size())] = static_cast<char>(pick(256));
        if (i % 5 == 0) bytes.resize(pick(bytes.size()));
        largest = 0;
        try {
          const PickleTree tree(bytes, "FILE");
          tree.find(tree.root(), "module");
          ++read;
        } catch (const Error& e) {
          EXPECT_TRUE(e.code() == ErrorCode::checkpoint) << e.what();
          ++refused;
        }
        EXPECT_LE(largest.load(), 64 * pickle.size() + 65536) << name << " " << i;
      }
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace drivetrain::test
