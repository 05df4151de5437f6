#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <set>

#include <drivetrain/dataset.h>
#include <drivetrain/random.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "documents.h"
#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

class Text : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = folder_.path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Forty documents with different bytes, some in folders.
  void write_documents() {
    for (int i = 0; i < 40; ++i)
      write(concat(i % 3 ? "" : "sub/", "d", i, ".txt"),
            concat("document ", i, " ", std::string(30, static_cast<char>('a' + i % 26))));
  }
  std::unique_ptr<Dataset> open(const std::string& entries, int64_t seq_length = 8, int64_t vocab = 256,
                                uint64_t seed = 5) {
    Host host;
    host.services.seed = seed;
    auto dataset =
        make_plugin<Dataset>(host, "text", concat("{\"files\": ", entries, ", \"seq_length\": ", seq_length, "}"));
    RunFacts run;
    run.train_batch_size = 4;
    ModelFacts model;
    model.vocab_size = vocab;
    facts_ = dataset->open(run, model);
    return dataset;
  }
  std::string all() const { return "[\"" + folder_.path() + "\"]"; }
  std::vector<std::string> found(const std::string& pattern) const {
    std::vector<std::string> names;
    for (const auto& d : text::find_documents({folder_.path(pattern)})) names.push_back(d.relative);
    return names;
  }

  TempFolder folder_;
  DatasetFacts facts_;
};

Batch rows(Dataset& dataset, int64_t step, int64_t first, int64_t count, DataPart part = DataPart::train) {
  Batch batch;
  dataset.read({part, step, first, count}, batch);
  return batch;
}

std::string bytes_of(const at::Tensor& row) {
  std::string bytes;
  for (int64_t i = 0; i < row.numel(); ++i) bytes.push_back(static_cast<char>(row[i].item<int64_t>()));
  return bytes;
}

using Names = std::vector<std::string>;

// A pattern's cost does not grow with the ways in which its stars could be read.
TEST_F(Text, patterns_made_to_take_long_end) {
  std::string deep = "a";
  for (int i = 0; i < 12; ++i) deep += "/" + std::string(20, 'a');
  write(deep + ".txt", "x");
  std::string stars, folders;
  for (int i = 0; i < 30; ++i) stars += "*a", folders += "**/*/";
  EXPECT_FALSE(text::matches((stars + "b").c_str(), std::string(250, 'a').c_str()));
  EXPECT_TRUE(text::matches((stars + "*").c_str(), std::string(250, 'a').c_str()));
  EXPECT_THROW(found("**/" + folders + "none"), Error);
  EXPECT_EQ(found("**/**/**/**/*.txt").size(), 1u);
  EXPECT_NE(error_of([&] { found(stars + stars + stars); }).find("a pattern with 90 stars, of which 64 may be"),
            std::string::npos);
  std::filesystem::create_directory_symlink(folder_.path(), folder_.path("a/circle"));
  EXPECT_EQ(found("**/*.txt").size(), 1u) << "links to folders are not followed";
}

TEST_F(Text, a_glob_matches_as_before) {
  const auto matches = [](const char* pattern, const char* path) { return text::matches(pattern, path); };
  EXPECT_TRUE(matches("**/x", "x") && matches("**/x", "a/x") && matches("**/x", "a/b/x"));
  EXPECT_TRUE(matches("a/**/b", "a/b") && matches("a/**/b", "a/c/d/b") && matches("a**b", "a/c/b"));
  EXPECT_TRUE(matches("*.txt", "a.txt") && matches("?.txt", "a.txt") && matches("***", "a/b") && matches("", ""));
  EXPECT_FALSE(matches("*.txt", "a/b.txt") || matches("?", "/") || matches("**/x", "ax") || matches("a", "ab"));
  EXPECT_FALSE(matches("a", "") || matches("", "a") || matches("*/", "a") || matches("a/**/b", "ab"));
}

TEST_F(Text, folders_and_globs_find_files_sorted_by_relative_path) {
  for (const char* name : {"b.h", "a.h", "a.txt", "sub/c.h", "sub/deep/d.h"}) write(name, "x");
  EXPECT_EQ(found(""), (Names{"a.h", "a.txt", "b.h", "sub/c.h", "sub/deep/d.h"}));
  EXPECT_EQ(found("*.h"), (Names{"a.h", "b.h"}));
  EXPECT_EQ(found("**/*.h"), (Names{"a.h", "b.h", "sub/c.h", "sub/deep/d.h"}));
  EXPECT_EQ(found("sub/**"), (Names{"c.h", "deep/d.h"}));
  EXPECT_EQ(found("?.h"), (Names{"a.h", "b.h"}));
  EXPECT_EQ(found("s*/*.h"), (Names{"sub/c.h"}));
  EXPECT_EQ(found("sub/c.h"), (Names{"c.h"}));
  EXPECT_EQ(text::find_documents({folder_.path("*.h"), folder_.path()}).size(), 5u);  // none twice
}

TEST_F(Text, what_is_neither_file_nor_folder_is_refused_before_it_is_read) {
  const std::string pipe = folder_.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  try {
    text::find_documents({pipe});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find("neither a file nor a folder"), std::string::npos) << e.what();
  }
}

TEST_F(Text, documents_are_joined_by_byte_zero_and_empty_ones_left_out) {
  write("a", "one"), write("b", ""), write("c", "two"), write("d", "three");
  text::Stream train, validation;
  int64_t seed = 0;
  const auto documents = text::find_documents({folder_.path()});
  const auto none_held_out = [&] {
    for (const char* name : {"a", "c", "d"})
      if (text::is_validation(seed, name)) return false;
    return true;
  };
  while (!none_held_out()) ++seed;
  text::read_documents(documents, seed, train, validation);
  EXPECT_EQ(train.bytes, std::string("one\0two\0three", 13));
  EXPECT_EQ(train.files, (Names{"a", "c", "d"}));
  EXPECT_TRUE(validation.bytes.empty());
}

TEST_F(Text, the_split_follows_the_hash_of_seed_and_path) {
  EXPECT_EQ(text::is_validation(7, "sub/a.h"), hash_name("7:sub/a.h") % 20 == 0);
  int held_out = 0;
  for (int i = 0; i < 10000; ++i) held_out += text::is_validation(1, concat("file", i));
  EXPECT_NEAR(held_out, 500, 5 * std::sqrt(10000 * 0.05 * 0.95));
}

TEST_F(Text, notes_tell_what_an_outside_script_needs) {
  write_documents();
  open(all(), 8, 256, 2);
  const Value &train = *facts_.notes.find("train"), &validation = *facts_.notes.find("validation");
  EXPECT_EQ(train.find("files")->as_int() + validation.find("files")->as_int(), 40);
  Names held_out;
  for (const Value& path : validation.find("paths")->items()) held_out.push_back(path.as_string());
  Names wanted;
  for (const auto& d : text::find_documents({folder_.path()}))
    if (hash_name("2:" + d.relative) % 20 == 0) wanted.push_back(d.relative);
  EXPECT_EQ(held_out, wanted);
  EXPECT_EQ(facts_.validation, !wanted.empty());
}

TEST_F(Text, training_rows_are_windows_at_the_documented_positions) {
  write_documents();
  const auto dataset = open(all());
  text::Stream train, validation;
  text::read_documents(text::find_documents({folder_.path()}), 5, train, validation);
  std::set<uint64_t> positions;
  for (int64_t step = 1; step <= 50; ++step) {
    const Batch b = rows(*dataset, step, 1, 2);
    for (int64_t i = 0; i < 2; ++i) {
      const auto w = philox({static_cast<uint32_t>(step), 0, static_cast<uint32_t>(1 + i), 0}, {5, 0});
      const uint64_t x = uint64_t{w[1]} << 32 | w[0], n = train.bytes.size() - 8;
      const auto at = static_cast<uint64_t>((static_cast<unsigned __int128>(x) * n) >> 64);
      EXPECT_EQ(bytes_of(b.tokens_BS[i]), train.bytes.substr(at, 8));
      EXPECT_EQ(bytes_of(b.labels_BS[i]), train.bytes.substr(at + 1, 8));
      positions.insert(at);
    }
  }
  EXPECT_GT(positions.size(), 80u);
}

TEST_F(Text, the_last_window_can_be_drawn_and_nothing_beyond) {
  write("only", "abcdefghi");  // exactly one window of 8 + 1
  int64_t seed = 0;
  while (text::is_validation(seed, "only")) ++seed;
  const auto dataset = open(all(), 8, 256, static_cast<uint64_t>(seed));
  EXPECT_EQ(bytes_of(rows(*dataset, 9, 0, 1).labels_BS[0]), "bcdefghi");
}

TEST_F(Text, validation_rows_are_spread_windows_and_start_again) {
  write("held", "0123456789abcdefghijklmnopq"), write("x", std::string(100, 'x')), write("y", std::string(100, 'y'));
  int64_t seed = 0;
  while (!(text::is_validation(seed, "held") && !text::is_validation(seed, "x") && !text::is_validation(seed, "y")))
    ++seed;
  const auto dataset = open(all(), 5, 256, static_cast<uint64_t>(seed));
  // 27 bytes: five windows of 5 tokens with their next byte, in steps of 3; batches of 4 rows.
  EXPECT_EQ(bytes_of(rows(*dataset, 1, 0, 1, DataPart::validation).tokens_BS[0]), "01234");
  EXPECT_EQ(bytes_of(rows(*dataset, 1, 1, 1, DataPart::validation).labels_BS[0]), "ghijk");
  EXPECT_EQ(bytes_of(rows(*dataset, 1, 3, 1, DataPart::validation).labels_BS[0]), "lmnop");
  EXPECT_EQ(bytes_of(rows(*dataset, 2, 0, 1, DataPart::validation).labels_BS[0]), "bcdef");
  EXPECT_EQ(bytes_of(rows(*dataset, 2, 1, 1, DataPart::validation).tokens_BS[0]), "01234");
}

// For dataset/packed: every file by itself, ended by byte 0, in the part that the split gives it.
TEST_F(Text, files_are_single_documents) {
  write("a", "one"), write("b", ""), write("c", "t\xfeo"), write("held", "three");
  int64_t seed = 0;
  const auto wanted = [&](const char* name) {
    return text::is_validation(seed, name) == (name == std::string("held"));
  };
  while (!(wanted("a") && wanted("c") && wanted("held"))) ++seed;
  const auto dataset = open(all(), 2, 256, static_cast<uint64_t>(seed));
  const Documents *train = dataset->documents(DataPart::train), *held = dataset->documents(DataPart::validation);
  ASSERT_EQ(train->count(), 2);
  ASSERT_EQ(held->count(), 1);
  using Ids = std::vector<int64_t>;
  const auto read = [](const Documents& documents, int64_t d, int64_t first, int64_t count) {
    Ids tokens(static_cast<size_t>(count)), labels(static_cast<size_t>(count));
    documents.read(d, first, count, tokens.data(), labels.data());
    return std::pair(tokens, labels);
  };
  EXPECT_EQ(train->length(0), 3);
  EXPECT_EQ(read(*train, 0, 0, 3), std::pair(Ids({'o', 'n', 'e'}), Ids({'n', 'e', 0})));
  EXPECT_EQ(read(*train, 1, 1, 2), std::pair(Ids({0xfe, 'o'}), Ids({'o', 0})));
  EXPECT_EQ(read(*held, 0, 3, 2), std::pair(Ids({'e', 'e'}), Ids({'e', 0})));
}

TEST_F(Text, a_part_without_files_has_no_documents) {
  write("a", "some text");
  int64_t seed = 0;
  while (text::is_validation(seed, "a")) ++seed;
  EXPECT_EQ(open(all(), 2, 256, static_cast<uint64_t>(seed))->documents(DataPart::validation), nullptr);
}

TEST_F(Text, bytes_above_127_are_tokens_above_127) {
  write("a", std::string(50, '\xfe')), write("b", std::string(50, '\xfe')), write("c", std::string(50, '\xfe'));
  const auto dataset = open(all(), 3);
  EXPECT_EQ(rows(*dataset, 1, 0, 4).tokens_BS.max().item<int64_t>(), 254);
}

TEST_F(Text, bad_input_is_refused_with_the_reason) {
  write("a", "short");
  const auto text_of = [&](const std::string& entries, int64_t vocab = 256) {
    return error_of([&] { open(entries, 100, vocab); });
  };
  EXPECT_NE(text_of(all()).find("has 5 bytes, a row needs seq_length + 1 = 101"), std::string::npos) << text_of(all());
  EXPECT_NE(text_of("[\"/no/such\"]").find("files names /no/such, which does not exist"), std::string::npos);
  EXPECT_NE(text_of("[\"" + folder_.path("*.h") + "\"]").find("*.h matches no file"), std::string::npos);
  EXPECT_NE(text_of("[\"/no/such/**/*.h\"]").find("matches no file"), std::string::npos);
  EXPECT_NE(text_of("[]").find("files is empty"), std::string::npos);
  EXPECT_NE(text_of(all(), 255).find("the model needs vocab_size 256 or more; it has 255"), std::string::npos);
}

TEST_F(Text, an_unreadable_file_is_an_input_error_that_names_it) {
  // A socket: root may open any file, but nobody a socket.
  const std::string path = folder_.path("s");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  try {
    open("[\"" + path + "\"]");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find(path + " cannot be read: "), std::string::npos) << e.what();
  }
  ::close(fd);
}

}  // namespace
}  // namespace drivetrain::test
