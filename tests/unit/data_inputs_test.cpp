// Which files `data prepare` takes for texts, and how it reads each: token files and parts of preparations are none, a
// name says whether lines are documents, and where it does not nothing is guessed.
#include "data_tools_fixture.h"

namespace drivetrain::test {
namespace {

struct DataInputs : DataTools {
  std::string refusal(const PrepareRequest& wanted) {
    return error_of([&] { prepare(wanted, tokenizer(), host_.log); });
  }
  void expect_says(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
  }
  PrepareRequest with(const std::string& output, const std::string& input, TextFormat format) {
    PrepareRequest wanted = request(output, {input});
    wanted.format = format;
    return wanted;
  }
};

TEST_F(DataInputs, a_folder_with_its_own_output_can_be_gone_on_with) {
  write("corpus/a.txt", "one"), write("corpus/b.txt", "two"), write("corpus/c.txt", "three");
  PrepareRequest wanted = request("corpus/tok", {folder_ / "corpus"});
  wanted.threads = 1;
  EXPECT_EQ(error_of([&] { prepare(wanted, tokenizer(256, 0, 2), host_.log); }), "stopped");
  ASSERT_TRUE(std::filesystem::exists(folder_ / "corpus/tok.bin.part"));
  write("corpus/other.progress.json.part", "{"), write("corpus/other.idx.part", "MMIDIDX");
  std::filesystem::copy(folder_ / "corpus/tok.progress.json", folder_ / "corpus/other.progress.json");
  EXPECT_EQ(refusal(wanted), "");
  EXPECT_EQ(texts_of(TokenFile(folder_ / "corpus/tok")), (std::vector<std::string>{"one", "two", "three"}));
}

TEST_F(DataInputs, an_output_that_has_one_of_its_names_can_be_gone_on_with) {
  write("corpus/a.txt", "one");
  const PrepareRequest wanted = request("corpus/tok", {folder_ / "corpus"});
  const auto made = std::make_shared<InTheWay>(folder_ / "corpus/tok.idx");
  EXPECT_NE(error_of([&] { prepare(wanted, {"tokenizer/shifted", made, made->facts()}, host_.log); }), "");
  ASSERT_TRUE(std::filesystem::exists(folder_ / "corpus/tok.bin"));
  std::filesystem::remove_all(folder_ / "corpus/tok.idx");
  EXPECT_EQ(refusal(wanted), "");
  EXPECT_EQ(texts_of(TokenFile(folder_ / "corpus/tok")), std::vector<std::string>{"one"});
}

TEST_F(DataInputs, token_files_are_no_texts) {
  write("corpus/a.txt", "one"), write("corpus/plain.bin", "text after all"), write("corpus/my.progress.json", "");
  prepare(request("corpus/tok", {folder_ / "corpus/a.txt"}), tokenizer(), host_.log);
  for (const char* input : {"corpus", "corpus/*"}) {
    host_.log.lines.clear();
    prepare(request(concat("two", input[6] ? "b" : "a"), {folder_ / input}), tokenizer(), host_.log);
    ASSERT_FALSE(host_.log.lines.empty());
    expect_says(host_.log.lines[0], {"left out", "corpus/tok.bin", "corpus/tok.idx"});
    EXPECT_EQ(host_.log.lines[0].find("plain.bin"), std::string::npos);
  }
  EXPECT_EQ(texts_of(TokenFile(folder_ / "twoa")), (std::vector<std::string>{"one", "text after all"}));
  EXPECT_EQ(both("twoa"), both("twob"));
  expect_says(refusal(request("x", {folder_ / "corpus/tok.bin"})), {"corpus/tok.bin", "the tokens of", "no text"});
  std::filesystem::copy(folder_ / "corpus/tok.idx", folder_ / "renamed.txt");
  expect_says(refusal(request("x", {folder_ / "renamed.txt"})), {"renamed.txt", "the index of token files"});
  expect_says(refusal(request("x", {write("a.lengths.part", "")})), {"a.lengths.part", "unfinished preparation"});
  std::filesystem::create_directory(folder_ / "none");
  std::filesystem::rename(folder_ / "renamed.txt", folder_ / "none/some.idx");
  expect_says(refusal(request("x", {folder_ / "none"})), {"none", "has no texts", "some.idx"});
}

TEST_F(DataInputs, endings_say_which_files_have_lines) {
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  for (const char* name : {"a.jsonl", "a.JSONL", "a.jsonlines", "a.NDJson", "a.json"}) {
    PrepareRequest wanted = request(concat("of_", name), {write(name, lines)});
    EXPECT_EQ(prepare(wanted, tokenizer(), host_.log).documents, 2u) << name;
  }
  expect_says(refusal(request("x", {write("a.txt.BZ2", "x")})), {"a.txt.BZ2", ".bz2"});
}

// A gzip member with its text stored as it is, as `gzip -1` of incompressible bytes makes it, and a raw zstd frame.
// Sources: RFC 1952 and 1951; RFC 8878. CRC and sizes are filled in by hand of these formats.
std::string gzip_of(const std::string& text) {
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  std::string packed("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  const auto number = [&](uint64_t x, int bytes) {
    for (int i = 0; i < bytes; ++i) packed += static_cast<char>(x >> 8 * i);
  };
  for (size_t at = 0; at == 0 || at < text.size(); at += 65535) {
    const std::string part = text.substr(at, 65535);
    packed += static_cast<char>(at + part.size() == text.size());
    number(part.size(), 2), number(~part.size(), 2);
    packed += part;
  }
  number(~crc, 4), number(text.size(), 4);
  return packed;
}
std::string zstd_of(const std::string& text) {
  std::string packed("\x28\xb5\x2f\xfd\x80\x58", 6);  // four bytes of size follow, a window of 2 MB
  for (int i = 0; i < 4; ++i) packed += static_cast<char>(text.size() >> 8 * i);
  for (size_t at = 0; at == 0 || at < text.size(); at += 100'000) {
    const std::string part = text.substr(at, 100'000);
    const uint64_t header = part.size() << 3 | (at + part.size() == text.size());
    for (int i = 0; i < 3; ++i) packed += static_cast<char>(header >> 8 * i);
    packed += part;
  }
  return packed;
}

TEST_F(DataInputs, packed_files_are_read_as_their_text) {
  std::string lines;
  for (int i = 0; i < 60'000; ++i) lines += concat("{\"text\": \"document ", i, std::string(i % 50, '.'), "\"}\n");
  prepare(request("plain", {write("a.jsonl", lines)}), tokenizer(), host_.log);
  const size_t half = lines.find('\n', lines.size() / 2) + 1;
  const std::map<std::string, std::string> packed = {
      {"a.jsonl.gz", gzip_of(lines)},
      {"b.jsonl.GZ", gzip_of(lines.substr(0, half)) + gzip_of(lines.substr(half))},
      {"c.jsonl.zst", zstd_of(lines)},
      {"d.json.zst", zstd_of(lines.substr(0, half)) + zstd_of(lines.substr(half))}};
  for (const auto& [name, bytes] : packed) {
    PrepareRequest wanted = request("of_" + name, {write(name, bytes)});
    const PrepareResult result = prepare(wanted, tokenizer(), host_.log);
    EXPECT_EQ(both("of_" + name), both("plain")) << name;
    EXPECT_EQ(result.text_bytes, lines.size()) << name;
    PrepareRequest stopped = request("stopped_" + name, {folder_ / name});
    EXPECT_NE(error_of([&] { prepare(stopped, tokenizer(256, 0, 40'000), host_.log); }).find("stopped"),
              std::string::npos);
    prepare(stopped, tokenizer(), host_.log);
    EXPECT_EQ(both("stopped_" + name), both("plain")) << name << ", stopped on the way";
  }
  const std::string text = "one text\nof two lines";
  prepare(request("whole", {write("t.txt.gz", gzip_of(text)), write("u.txt.zst", zstd_of(text))}), tokenizer(),
          host_.log);
  EXPECT_EQ(texts_of(TokenFile(folder_ / "whole")), (std::vector<std::string>{text, text}));
}

TEST_F(DataInputs, packed_files_that_are_damaged_are_named) {
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  expect_says(refusal(request("x", {write("no.jsonl.gz", "x")})), {"no.jsonl.gz", "unpacked"});
  expect_says(refusal(request("y", {write("no.jsonl.zst", "no zstd")})), {"no.jsonl.zst", "unpacked"});
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>{"cut.jsonl.gz", gzip_of(lines)}, {"cut.jsonl.zst", zstd_of(lines)}})
    expect_says(refusal(request("z", {write(name, bytes.substr(0, bytes.size() - 5))})), {name, "ends too soon"});
  // Under a name that does not say it.
  expect_says(refusal(request("v", {write("lines.jsonl", gzip_of(lines))})),
              {"lines.jsonl", "packed by gzip", "gzip -dk"});
  std::string changed = gzip_of(lines);
  changed[20] ^= 1;
  expect_says(refusal(request("w", {write("changed.jsonl.gz", changed)})), {"changed.jsonl.gz", "unpacked"});
}

TEST_F(DataInputs, what_looks_like_JSON_under_another_name_wants_a_format) {
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  int made = 0;
  for (const std::string begin : {"", " \n\t", "\xef\xbb\xbf"}) {
    const std::string input = write("part-00000", begin + lines);
    expect_says(refusal(request("x", {input})), {input, "begins with {", "--format jsonl", "--format text"});
    const std::string text = concat("text", ++made);
    EXPECT_EQ(refusal(with(text, input, TextFormat::text)), "");
    EXPECT_EQ(texts_of(TokenFile(folder_ / text)), std::vector<std::string>{begin + lines});
  }
  const std::string input = write("part-00000", lines);
  EXPECT_EQ(prepare(with("lines", input, TextFormat::json_lines), tokenizer(), host_.log).documents, 2u);
  EXPECT_EQ(prepare(with("whole", write("a.json", lines), TextFormat::text), tokenizer(), host_.log).documents, 1u);
  EXPECT_EQ(refusal(request("blank", {write("blank.txt", " \n\n")})), "") << "blanks are a text";
}

TEST_F(DataInputs, options_for_lines_want_lines) {
  PrepareRequest key = request("x", {write("a.txt", "text")}), skip = key;
  key.json_key_given = true, skip.skip_broken = true;
  expect_says(refusal(key), {"--json-key", "a.txt", "--format jsonl"});
  expect_says(refusal(skip), {"--skip-broken", "a.txt"});
  skip.inputs.push_back(write("b.jsonl", "{\"text\": \"line\"}\n"));
  EXPECT_EQ(refusal(skip), "") << "one input that has lines is enough";
}

TEST_F(DataInputs, another_format_is_another_preparation) {
  const std::string first = write("a.json", "{\"text\": \"a\"}\n"), second = write("b.json", "{\"text\": \"b\"}\n");
  PrepareRequest wanted = request("cut", {first, second});
  wanted.threads = 1;
  EXPECT_EQ(error_of([&] { prepare(wanted, tokenizer(256, 0, 1), host_.log); }), "stopped");
  wanted.format = TextFormat::text;
  expect_says(refusal(wanted), {"cut.progress.json", "format is \"whole texts\"", "\"by the ending\""});
}

}  // namespace
}  // namespace drivetrain::test
