// Folders with files of a byte-level BPE tokenizer, made from those of tests/golden.
#pragma once

#include <gtest/gtest.h>

#include <drivetrain/tokenizer.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"

namespace drivetrain::test {

class BpeFiles : public testing::Test {
 protected:
  using Ids = std::vector<int32_t>;
  static std::string golden(const std::string& name) { return DRIVETRAIN_GOLDEN_DIR "/tokenizer_files/" + name; }

  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  // GPT-2's pair of files with further tokens, the first of which has the id 520. Without the one that ends documents,
  // unless it is asked for.
  void write_pair(const std::vector<std::string>& more, bool end_of_text = false) {
    Value vocab = read_json_file(golden("gpt2/vocab.json"));
    int32_t id = 520;
    if (!end_of_text) vocab.erase("<|endoftext|>");
    for (const std::string& token : more) vocab.set(token, id++);
    write("vocab.json", vocab.to_json());
    std::filesystem::copy_file(golden("gpt2/merges.txt"), folder_ / "merges.txt",
                               std::filesystem::copy_options::overwrite_existing);
  }

  // A tokenizer.json of tests/golden with one section replaced.
  void write_json(const std::string& name, const std::string& key, const std::string& section) {
    Value file = read_json_file(golden(name + "/tokenizer.json"));
    file.set(key, parse_json(section, "test"));
    write("tokenizer.json", file.to_json());
  }

  std::unique_ptr<Tokenizer> open() {
    auto made = make_plugin<Tokenizer>(host_, "bpe");
    made->open(folder_.path());
    return made;
  }

  static Ids ids_of(const Tokenizer& tokenizer, const std::string& text) {
    Ids ids;
    tokenizer.encode(text, ids);
    return ids;
  }
  static bool has(const Ids& ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

  // Opening is refused with Error(config), and the words are in it.
  void expect_refused(const std::vector<std::string>& words) {
    try {
      open();
      ADD_FAILURE() << "nothing was refused; wanted " << words.front();
    } catch (const Error& e) {
      const std::string error = e.what();
      EXPECT_EQ(e.code(), ErrorCode::config) << error;
      for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << word << " in: " << error;
    }
  }

  const Host host_;
  const TempFolder folder_;
};

}  // namespace drivetrain::test
