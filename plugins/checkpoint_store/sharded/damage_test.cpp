// checkpoint_store/sharded: every changed bit and every missing byte of a checkpoint is found and its file named; files
// of other ranks, tags, saves and versions are told apart.
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <tuple>

#include "signed_json.h"
#include "test_saves.h"

namespace drivetrain::test {
namespace {

using Strings = std::vector<std::string>;

struct ShardedDamage : ShardedTest {
  void SetUp() override { save(*store(), state(), "a", 1, 1); }
  static State state() { return {{"w", numbers({3, 2}, at::kFloat, 1)}}; }

  // What is said about the checkpoint; empty: nothing.
  static std::string said(const std::function<Strings()>& verify) {
    try {
      const Strings problems = verify();
      return problems.empty() ? "" : problems.front();
    } catch (const Error& e) {
      return e.code() == ErrorCode::checkpoint ? e.what() : "";
    }
  }
  std::string said_by_open(const std::string& tag = "a") {
    const auto used = store(false);
    return said([&] { return used->open(tag)->verify(); });
  }
  std::string said_by_read(const std::string& tag = "a") {
    const auto used = store(false);
    return error_of([&] { read_all(*used->open(tag)); });
  }
  static void put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
};

TEST_F(ShardedDamage, every_flipped_bit_of_the_data_is_found_and_nothing_is_read_from_it) {
  const std::string path = file("a", "rank-00000.safetensors");
  const auto used = store();
  const auto open = used->open("a");
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  int64_t missed = 0;
  for (int64_t bit = 0; bit < 8 * bytes; ++bit) {
    char byte = 0;
    ASSERT_EQ(::pread(descriptor, &byte, 1, bit / 8), 1);
    const char flipped = static_cast<char>(byte ^ (1 << bit % 8));
    ASSERT_EQ(::pwrite(descriptor, &flipped, 1, bit / 8), 1);
    const std::string found = said([&] { return open->verify(); });
    missed += found.find("rank-00000.safetensors") == std::string::npos;
    if (bit % 997 == 0 || bit / 8 >= bytes - 24) {  // those that are read
      const auto fresh = used->open("a");
      const at::Tensor into = at::zeros({3, 2});
      const std::string refused = error_of([&] { fresh->read("w", {0, 0, 3, 2}, into); });
      const bool chunk_of_tensor = bit / 8 >= 4096;
      EXPECT_EQ(refused.empty(), !chunk_of_tensor) << bit;
      if (chunk_of_tensor) {
        EXPECT_NE(refused.find("bytes 4096 to 4120"), std::string::npos) << refused;
        EXPECT_NE(refused.find("tensor \"w\""), std::string::npos) << refused;
      }
    }
    ASSERT_EQ(::pwrite(descriptor, &byte, 1, bit / 8), 1);
  }
  ::close(descriptor);
  EXPECT_EQ(missed, 0) << "of " << 8 * bytes;
  EXPECT_EQ(open->verify(), Strings{});
}

TEST_F(ShardedDamage, what_is_no_file_is_damage_and_nobody_waits_for_it) {
  const std::string path = file("a", "manifest.json"), index = file("a", "rank-00000.index.json");
  save(*store(), small_state(1), "b", 2);
  for (const std::string& one : {path, index}) {
    std::filesystem::rename(one, folder.path("kept"));
    ASSERT_EQ(::mkfifo(one.c_str(), 0600), 0);
    EXPECT_NE(said_by_open().find(one + ": is no regular file"), std::string::npos);
    std::filesystem::remove(one);
    std::filesystem::create_symlink(one, one);
    EXPECT_NE(said_by_open().find(one + ": is no regular file"), std::string::npos);
    EXPECT_EQ(names(*store(false)).front(), "b");
    std::filesystem::remove(one);
    std::filesystem::rename(folder.path("kept"), one);
  }
}

TEST_F(ShardedDamage, every_flipped_bit_of_the_descriptions_is_found) {
  for (const std::string name : {"rank-00000.index.json", "manifest.json"}) {
    const std::string path = file("a", name), right = folder.text("checkpoints/a/" + name);
    const auto used = store();
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    int64_t missed = 0, listed = 0;
    for (size_t bit = 0; bit < 8 * right.size(); ++bit) {
      const auto at = static_cast<off_t>(bit / 8);
      const char flipped = static_cast<char>(right[bit / 8] ^ (1 << bit % 8));
      ASSERT_EQ(::pwrite(descriptor, &flipped, 1, at), 1);
      missed += said([&] { return used->open("a")->verify(); }).find(name) == std::string::npos;
      if (name == "manifest.json" && bit % 61 == 0) listed += static_cast<int64_t>(used->tags().size());
      ASSERT_EQ(::pwrite(descriptor, &right[bit / 8], 1, at), 1);
    }
    ::close(descriptor);
    EXPECT_EQ(missed, 0) << name << ": of " << 8 * right.size();
    EXPECT_EQ(listed, 0);
  }
  EXPECT_EQ(said_by_open(), "");
  ASSERT_FALSE(host.log.warnings.empty());
  EXPECT_NE(host.log.warnings[0].find("manifest.json"), std::string::npos) << host.log.warnings[0];
}

TEST_F(ShardedDamage, every_length_but_the_right_one_is_found) {
  for (const std::string name : {"rank-00000.safetensors", "rank-00000.index.json", "manifest.json"}) {
    const std::string path = file("a", name), right = folder.text("checkpoints/a/" + name);
    const auto used = store();
    int64_t missed = 0;
    const auto is_missed = [&] {
      return said([&] { return used->open("a")->verify(); }).find(name) == std::string::npos;
    };
    put(path, right + "\n");
    missed += is_missed();
    put(path, right);
    for (size_t bytes = right.size(); bytes-- > 0;) {
      std::filesystem::resize_file(path, bytes);
      missed += is_missed();
    }
    put(path, right);
    EXPECT_EQ(missed, 0) << name;
  }
  EXPECT_EQ(said_by_open(), "");
  const std::string data = file("a", "rank-00000.safetensors");
  std::filesystem::resize_file(data, 4100);
  EXPECT_NE(said_by_read().find("has 4100 bytes instead of 4120: it was cut short"), std::string::npos)
      << said_by_read();
}

TEST_F(ShardedDamage, missing_files_are_named) {
  for (const std::string name : {"rank-00000.safetensors", "rank-00000.index.json", "manifest.json"}) {
    const std::string path = file("a", name);
    std::filesystem::rename(path, path + ".away");
    const std::string found = said_by_read();
    EXPECT_NE(found.find(name == "manifest.json" ? "no complete checkpoint" : name), std::string::npos) << found;
    std::filesystem::rename(path + ".away", path);
  }
  std::filesystem::remove(file("a", "manifest.json"));
  EXPECT_EQ(names(*store()), Strings{});
  ASSERT_FALSE(host.log.warnings.empty());
  EXPECT_NE(host.log.warnings[0].find("a/manifest.json: is missing"), std::string::npos) << host.log.warnings[0];
}

// Two files change places, and what is said names the one and whose it is.
TEST_F(ShardedDamage, files_of_other_ranks_tags_and_saves_are_told_apart) {
  const auto used = store();
  save(*used, small_state(1), "b", 2, 2), save(*used, small_state(2), "c", 3, 2),
      save(*used, small_state(1), "d", 2, 2);
  const auto with = [&](const std::string& one, const std::string& other) {
    const std::string aside = folder.path("aside");
    const auto swap = [&] {
      std::filesystem::rename(one, aside), std::filesystem::rename(other, one), std::filesystem::rename(aside, other);
    };
    swap();
    const std::string found = said_by_open("b");
    swap();
    return found;
  };
  const auto expect = [&](const std::string& name, const std::string& tag, const std::string& other, const char* says) {
    const std::string found = with(file("b", name), file(tag, other));
    EXPECT_NE(found.find(name), std::string::npos) << found;
    EXPECT_NE(found.find(says), std::string::npos) << found;
  };
  expect("rank-00000.safetensors", "b", "rank-00001.safetensors", "found rank 1 of 2, tag b");
  expect("rank-00000.safetensors", "c", "rank-00000.safetensors", "found rank 0 of 2, tag c (step 3)");
  expect("rank-00000.index.json", "b", "rank-00001.index.json", "found rank 1 of 2, tag b");
  expect("rank-00001.index.json", "d", "rank-00001.index.json", "found rank 1 of 2, tag d");
  expect("manifest.json", "c", "manifest.json", "is of the tag c");
  save(*used, small_state(1), "aside", 2, 2);  // an earlier save of the same tag
  std::filesystem::copy(folder.path("checkpoints/b"), folder.path("before"));
  save(*used, small_state(1), "b", 2, 2);
  for (const std::string name : {"rank-00000.safetensors", "rank-00000.index.json"}) {
    std::filesystem::rename(file("b", name), folder.path("kept"));
    std::filesystem::copy(folder.path("before/" + name), file("b", name));
    const std::string found = said_by_open("b");
    EXPECT_TRUE(found.find(name) != std::string::npos && found.find("another save") != std::string::npos) << found;
    std::filesystem::rename(folder.path("kept"), file("b", name));
  }
  EXPECT_EQ(said_by_open("b"), "");
  const std::string renamed =
      (std::filesystem::rename(folder.path("checkpoints/b"), folder.path("checkpoints/z")), said_by_open("z"));
  EXPECT_NE(renamed.find("give the folder its name b back"), std::string::npos) << renamed;
}

TEST_F(ShardedDamage, foreign_files_are_named_and_newer_versions_too) {
  put(file("a", "notes.txt"), "mine");
  EXPECT_NE(said_by_open().find("notes.txt: is no file of this checkpoint"), std::string::npos) << said_by_open();
  EXPECT_EQ(said_by_read(), "");
  std::filesystem::remove(file("a", "notes.txt"));
  const std::string data = file("a", "rank-00000.safetensors");
  const std::string right = folder.text("checkpoints/a/rank-00000.safetensors");
  put(data, std::string(right.size(), 'x'));
  EXPECT_NE(said_by_open().find("foreign or damaged"), std::string::npos) << said_by_open();
  put(data, right);
  for (const std::string name : {"rank-00000.index.json", "manifest.json"}) {
    const std::string text = folder.text("checkpoints/a/" + name);
    Value value = parse_json(text, "test");
    value.erase("xxh3_128");
    value.set("version", 2);
    put(file("a", name), sharded::signed_json(value));
    EXPECT_NE(said_by_read().find("newer version"), std::string::npos) << said_by_read();
    put(file("a", name), "{\"format\": 1}" + std::string(100, ' '));
    EXPECT_NE(said_by_read().find("foreign or damaged"), std::string::npos) << said_by_read();
    put(file("a", name), text);
  }
  put(folder.path("checkpoints/readme"), "a file among the tags");
  std::filesystem::create_directories(folder.path("checkpoints/folder/of/mine"));
  EXPECT_EQ(names(*store()), Strings{"a"});
}

// What a description claims is checked before it is used, though its digest is right.
TEST_F(ShardedDamage, an_index_that_cannot_be_is_refused) {
  const std::string path = file("a", "rank-00000.index.json"), manifest = file("a", "manifest.json");
  const std::string index_text = folder.text("checkpoints/a/rank-00000.index.json");
  const std::string manifest_text = folder.text("checkpoints/a/manifest.json");
  const auto refusal = [&](const std::string& key, const Value& value) {
    Value index = parse_json(index_text, "test"), described = parse_json(manifest_text, "test");
    for (Value* const signed_by_writer : {&index, &described}) signed_by_writer->erase("xxh3_128");
    Value slice = index.find("slices")->items()[0], rank = described.find("ranks")->items()[0];
    (slice.find(key) ? slice : index).set(key, value);
    Value::Array slices = index.find("slices")->items();  // two rows of w, and the third
    slices[0] = slice;
    index.set("slices", Value(std::move(slices)));
    const std::string text = sharded::signed_json(index);
    put(path, text);
    rank.set("index_digest", sharded::digest_of(text).text());
    rank.set("index_bytes", static_cast<int64_t>(text.size()));
    described.set("ranks", Value(Value::Array{rank}));
    put(manifest, sharded::signed_json(described));
    return said_by_read();
  };
  const auto list = [](const std::vector<int64_t>& numbers) {
    return Value(Value::Array(numbers.begin(), numbers.end()));
  };
  EXPECT_EQ(refusal("tensor", "w"), "");
  for (const auto& [key, value, says] : std::vector<std::tuple<const char*, Value, const char*>>{
           {"dtype", "F33", "unknown dtype"},
           {"dtype", "F64", "bytes cannot be"},
           {"dtype", 3, "expected string"},
           {"shape", list({3, -2}), "negative"},
           {"shape", list({3, int64_t{1} << 62}), "overflows"},
           {"box", list({0, 0, 3}), "3 numbers instead of 4"},
           {"box", list({1, 0, 3, 2}), "not inside"},
           {"bytes", list({4108, 4124}), "not inside of the file"},
           {"bytes", list({4094, 4110}), "no multiple"},
           {"chunk_bytes", 0, "chunk_bytes"},
           {"chunks", list({}), "digests for"},
           {"chunks", Value(Value::Array{Value("xyz"), Value("xyz")}), "is no digest"},
           {"rank", 1, "does not fit"}}) {
    const std::string found = refusal(key, value);
    EXPECT_NE(found.find(says), std::string::npos) << key << ": " << found;
  }
}

TEST_F(ShardedDamage, without_verify_bits_are_not_looked_at) {
  std::fstream data(file("a", "rank-00000.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
  data.seekp(4096) << '!';
  data.close();
  ShardedStore::Options options;
  options.verify = false;
  const auto used = store_at(folder.path(), calls, false, options);
  EXPECT_EQ(error_of([&] { read_all(*used->open("a")); }), "");
  EXPECT_EQ(used->open("a")->verify().size(), 1u);
}

TEST_F(ShardedDamage, slices_that_are_missing_or_there_twice_are_found) {
  const auto used = store();
  auto parts = cut({{"w", numbers({4, 3}, at::kFloat, 1)}}, "b", 1, 1, 1);
  const at::Tensor rows = numbers({2, 3}, at::kFloat, 5);
  for (const int64_t second : {1, 3}) {  // rows 0 and 1, then one of them again, or one left out
    Snapshot snapshot{"b", 1, 0, 1, {}};
    for (const int64_t row : {int64_t{0}, second})
      snapshot.slices.push_back({"w", {second + 2, 3}, {row, 0, 2, 3}, rows.clone()});
    used->commit("b", 1, Value::object(), {used->write(snapshot)});
    const std::string found = said_by_open("b");
    EXPECT_NE(found.find(second == 1 ? "there twice" : "rows 2 to 3, columns 0 to 3 are in no file"), std::string::npos)
        << found;
    EXPECT_EQ(said_by_read("b").empty(), second == 1);
  }
}

}  // namespace
}  // namespace drivetrain::test
