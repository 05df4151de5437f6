// Token files that are damaged: every check names file and place. What is shown of whole ones.
#include <functional>

#include "data_tools/show.h"
#include "data_tools_fixture.h"

namespace drivetrain::test {
namespace {

struct DataTokenFile : DataTools {
  // Three documents: "ab", "c", "defg".
  DataTokenFile() {
    prepare(request("good", {write("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n{\"text\":\"defg\"}\n")}),
            tokenizer(), host_.log);
  }
  // All problems of a copy whose bytes were changed, or what opening it says.
  std::string problems(const std::function<void(std::string& bin, std::string& idx)>& change) {
    std::string bin = folder_.text("good.bin"), idx = folder_.text("good.idx");
    change(bin, idx);
    write("bad.bin", bin), write("bad.idx", idx);
    std::string text;
    const std::string refusal = error_of([&] {
      for (const std::string& one : TokenFile(folder_ / "bad.bin").problems()) text += one + "\n";
    });
    return refusal + text;
  }
};

constexpr size_t kLengths = 34, kPointers = kLengths + 3 * 4, kDocuments = kPointers + 3 * 8;

TEST_F(DataTokenFile, every_rule_of_the_form_is_checked) {
  struct Damage {
    const char* says;
    std::function<void(std::string& bin, std::string& idx)> change;
  };
  const auto put = [](size_t at, char value) { return [=](std::string&, std::string& idx) { idx[at] = value; }; };
  const Damage damages[] = {
      {"bad.idx: does not begin with MMIDIDX", put(0, 'X')},
      {"bad.idx: is of version 2", put(9, 2)},
      {"bad.idx: the code of the type is 7", put(17, 7)},
      {"bad.idx: has 102 bytes, which do not fit 4 sequences", put(18, 4)},
      {"do not fit", put(25, '\x7f')},  // 12 times the number overflows
      {"do not fit 3 sequences and 0 begins", [](std::string&, std::string& idx) { idx[26] = 0; }},
      {"bad.idx: has 20 bytes; the header", [](std::string&, std::string& idx) { idx.resize(20); }},
      {"bad.idx: sequence 1 has -1 tokens",
       [](std::string&, std::string& idx) { idx.replace(kLengths + 4, 4, "\xff\xff\xff\xff"); }},
      {"bad.idx: sequence 1 begins at byte 3, where no token of 2 bytes", put(kPointers + 8, 3)},
      {"bad.idx: sequence 1 begins at byte 2; the one before ends at byte 4", put(kPointers + 8, 2)},
      {"bad.bin: has 12 bytes; sequence 2 has 8 from byte 6", [](std::string& bin, std::string&) { bin.resize(12); }},
      {"bad.bin: has 16 bytes; the sequences", [](std::string& bin, std::string&) { bin += "xy"; }},
      {"bad.idx: document 0 begins with sequence 1", put(kDocuments, 1)},
      {"bad.idx: document 2 begins with sequence 0, the one before with 1", put(kDocuments + 16, 0)},
      {"bad.idx: document 3 begins with sequence 9; there are 3", put(kDocuments + 24, 9)},
      {"bad.idx: the documents end with sequence 2; there are 3", put(kDocuments + 24, 2)},
  };
  EXPECT_EQ(problems([](std::string&, std::string&) {}), "");
  for (const Damage& damage : damages) {
    const std::string found = problems(damage.change);
    EXPECT_NE(found.find(damage.says), std::string::npos) << damage.says << "\nfound: " << found;
  }
}

TEST_F(DataTokenFile, ids_are_named_with_document_and_position) {
  const TokenFile file(folder_ / "good");
  EXPECT_EQ(verify_token_file(file, 0), std::vector<std::string>{});
  EXPECT_EQ(verify_token_file(file, 'g' + 1), std::vector<std::string>{});
  const std::vector<std::string> wrong = verify_token_file(file, 'f');
  ASSERT_EQ(wrong.size(), 2u);
  EXPECT_NE(wrong[0].find("good.bin: document 2, position 2: token 102 is not below 102"), std::string::npos)
      << wrong[0];
  EXPECT_NE(wrong[1].find("position 3"), std::string::npos) << wrong[1];
}

TEST_F(DataTokenFile, a_file_that_is_not_there_is_named) {
  EXPECT_NE(error_of([&] { TokenFile(folder_ / "none"); }).find("none.idx"), std::string::npos);
}

TEST_F(DataTokenFile, lengths_and_documents_are_shown) {
  const TokenFile file(folder_ / "good.idx");
  const LengthHistogram histogram = length_histogram(file);
  EXPECT_EQ(histogram.bars, (std::vector<uint64_t>{1, 1, 1}));
  EXPECT_EQ(histogram.shortest, 1u);
  EXPECT_EQ(histogram.median, 2u);
  EXPECT_EQ(histogram.longest, 4u);
  const Shifted bytes;
  const DocumentSample sample = sample_document(file, 2, 3, &bytes);
  EXPECT_EQ(sample.text, "def");
  const Value shown = show_value(file, histogram, sample);
  EXPECT_EQ(shown.find("documents")->as_int(), 3);
  EXPECT_EQ(shown.find("tokens")->as_int(), 7);
  EXPECT_EQ(shown.find("document")->find("text")->as_string(), "def");
  const std::string text = show_text(file, histogram, sample);
  for (const char* word : {"3 documents", "7 tokens", "uint16", "document 2: 4 tokens", "first 3", "def"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  const std::string svg = histogram_svg(histogram, "a < b");
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
  EXPECT_NE(error_of([&] { sample_document(file, 3, 1, nullptr); }).find("no document 3"), std::string::npos);
  const Shifted few(100);
  EXPECT_NE(error_of([&] { sample_document(file, 2, 3, &few); }).find("document 2, position 0: token 100"),
            std::string::npos);
}

// A file that another program cuts while it is read: an error with the byte, where a mapping would end the process.
TEST_F(DataTokenFile, a_file_that_becomes_shorter_is_an_error) {
  for (const char* name : {"good.bin", "good.idx"}) {
    SCOPED_TRACE(name);
    const std::string whole = folder_.text(name);
    const TokenFile file(folder_ / "good");
    std::filesystem::resize_file(folder_ / name, 3);
    const std::string refusal = error_of([&] { verify_token_file(file, 0); });
    for (const std::string& says :
         {std::string(name), std::string("has no byte"), concat("had ", whole.size(), " bytes")})
      EXPECT_NE(refusal.find(says), std::string::npos) << says << "\nin: " << refusal;
    EXPECT_NE(error_of([&] { sample_document(file, 2, 3, nullptr); }).find("has no byte"), std::string::npos);
    write(name, whole);
  }
}

// More of everything than a window holds.
TEST_F(DataTokenFile, files_of_several_blocks_are_read_as_a_whole) {
  std::string text;
  for (int i = 0; i < 600'000; ++i) text += concat(R"({"text":")", i % 10, i % 3 ? "" : "more text", "\"}\n");
  text += R"({"text":")" + std::string(5'000'000, 'z') + "\"}";
  prepare(request("large", {write("large.jsonl", text)}), tokenizer(), host_.log);
  const TokenFile file(folder_ / "large");
  EXPECT_EQ(verify_token_file(file, 'z' + 1), std::vector<std::string>{});
  const std::vector<std::string> wrong = verify_token_file(file, 'z');
  ASSERT_EQ(wrong.size(), 20u);
  EXPECT_NE(wrong[19].find("document 600000, position 19: token 122"), std::string::npos) << wrong[19];
  EXPECT_EQ(length_histogram(file).longest, 5'000'000u);
  for (const uint64_t d : {599'999u, 0u, 300'000u}) {  // windows move backwards too
    const DocumentSample sample = sample_document(file, d, ~uint64_t{0}, nullptr);
    EXPECT_EQ(sample.length, d % 3 ? 1u : 10u);
    EXPECT_EQ(sample.ids[0], static_cast<int64_t>('0' + d % 10));
  }
}

}  // namespace
}  // namespace drivetrain::test
