// The conformance suite of tokenizer over every built implementation, with the golden files that each recognizes, and
// the ids that Hugging Face's tokenizers and SentencePiece gave for them.
#include <gtest/gtest.h>

#include <filesystem>

#include <drivetrain/toolkit/text/utf8.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/tokenizer/suite.h>

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> golden_folders() {
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(fs::path(DRIVETRAIN_GOLDEN_DIR) / "tokenizer_files"))
    folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::shared_ptr<Tokenizer> make(const std::string& name, const Host& host) {
  return installed_plugins().make<Tokenizer>(name, "{}", host.services);
}

// Which of them recognize the folder.
std::vector<std::string> readers_of(const std::string& folder, const Host& host) {
  std::vector<std::string> names;
  for (const std::string& name : installed_plugins().names(Tokenizer::kKind))
    if (!make(name, host)->recognizes(folder).empty()) names.push_back(name);
  return names;
}

TEST(TokenizerConformance, every_built_tokenizer_passes) {
  const Host host;
  const std::vector<std::string> names = installed_plugins().names(Tokenizer::kKind);
  EXPECT_GE(names.size(), 3u);
  for (const std::string& name : names) {
    bool reads_files = false;
    for (const std::string& folder : golden_folders()) {
      if (make(name, host)->recognizes(folder).empty()) continue;
      SCOPED_TRACE(folder);
      reads_files = true;
      run_suite({Tokenizer::kKind, name, Value::Object{{"folder", folder}}});
    }
    if (!reads_files) run_suite({Tokenizer::kKind, name, Value::object()});
  }
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST(TokenizerConformance, ids_are_those_of_the_libraries_that_made_the_files) {
  const Host host;
  size_t compared = 0;
  for (const std::string& folder : golden_folders()) {
    SCOPED_TRACE(folder);
    const std::vector<std::string> readers = readers_of(folder, host);
    ASSERT_EQ(readers.size(), 1u);
    const auto tokenizer = make(readers[0], host);
    tokenizer->open(folder);
    const Value cases = read_json_file(folder + "/cases.json");
    for (const Value& one : cases.items()) {
      const std::string text = from_hex(one.find("bytes")->as_string());
      std::vector<int32_t> ids, wanted;
      for (const Value& id : one.find("ids")->items()) wanted.push_back(static_cast<int32_t>(id.as_int()));
      tokenizer->encode(text, ids);
      EXPECT_EQ(ids, wanted) << text;
      std::string decoded, back;
      tokenizer->decode(wanted, decoded);
      append_replaced(decoded, back);
      std::string expected;
      if (const Value* other = one.find("decoded"))
        expected = from_hex(other->as_string());
      else
        append_replaced(text, expected);
      EXPECT_EQ(back, expected);
      ++compared;
    }
  }
  EXPECT_GT(compared, 400u);
}

}  // namespace
}  // namespace drivetrain::test
