// The pieces of text that messages are made of.
#include <drivetrain/toolkit/files/proc_text.h>
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/text/json_line.h>
#include <drivetrain/toolkit/text/merge_symbols.h>
#include <drivetrain/toolkit/text/packed_file.h>
#include <drivetrain/toolkit/text/piece_cache.h>
#include <drivetrain/toolkit/text/utf8.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// Reading gives ESRCH where a process ends after its file was opened.
TEST(ProcText, a_process_may_end_while_it_is_read) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(0);
  const std::string path = concat("/proc/", child, "/stat");
  std::ifstream open(path), other(path);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_THROW(std::string(std::istreambuf_iterator<char>(open), {}), std::exception) << "what proc_text is for";
  EXPECT_EQ(rest_of(other), "");
  EXPECT_EQ(proc_text(path), "");
  EXPECT_NE(proc_text("/proc/self/stat"), "");
}

TEST(Text, lists_are_joined_whatever_they_hold) {
  EXPECT_EQ(join(std::vector<std::string>{}), "");
  EXPECT_EQ(join(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}, " or "), "a or b or c");
  EXPECT_EQ(join(std::set<int64_t>{64, 32}), "32, 64");
}

TEST(Text, divisors_are_all_told_or_the_first_dozen) {
  EXPECT_EQ(divisors_text(1), "1");
  EXPECT_EQ(divisors_text(6), "1, 2, 3, 6");
  EXPECT_EQ(divisors_text(60), "1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60");
  EXPECT_EQ(divisors_text(64 * 9), "1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, ...");
}

TEST(Text, formatted_text_is_cut_at_its_limit) {
  EXPECT_EQ(formatted("%.1f %%", 12.34), "12.3 %");
  EXPECT_EQ(formatted("%s", std::string(2000, 'x').c_str()), std::string(511, 'x'));
}

TEST(Text, a_first_line_ends_before_the_line_break) {
  EXPECT_EQ(first_line("one\ntwo"), "one");
  EXPECT_EQ(first_line("one"), "one");
}

std::string problem_of(const std::string& line) {
  try {
    parse_json_line(line);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    return e.what();
  }
  return "none";
}

TEST(JsonLine, reads_what_the_strict_reader_reads) {
  for (const char* text : {"null", " true ", "[]", "{}", "-0", "7", "-12.5e+3", "1E2", "\"\"",
                           R"([1, [2, {"a": []}], "x"])", R"({"a": {"b": "c"}, "d": [false]})",
                           R"("\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀")", "9223372036854775807", "-9223372036854775808"})
    EXPECT_EQ(parse_json_line(text), parse_json(text, "x")) << text;
}

TEST(JsonLine, takes_what_python_takes_and_json_has_not) {
  EXPECT_TRUE(std::isnan(parse_json_line("NaN").as_double()));
  EXPECT_EQ(parse_json_line("[Infinity]").items().at(0).as_double(), HUGE_VAL);
  EXPECT_EQ(parse_json_line("-Infinity").as_double(), -HUGE_VAL);
  EXPECT_EQ(parse_json_line("1e999").as_double(), HUGE_VAL);
  EXPECT_EQ(parse_json_line("9223372036854775808").as_double(), 9223372036854775808.0);
  EXPECT_EQ(parse_json_line(R"({"a": 1, "a": 2})").members().size(), 2u);
  EXPECT_EQ(parse_json_line("\xef\xbb\xbf[1]").items().size(), 1u);
  EXPECT_EQ(parse_json_line(R"("\ud800x\udc00")").as_string(), "\xed\xa0\x80x\xed\xb0\x80");
}

TEST(JsonLine, names_what_is_wrong_and_its_column) {
  for (const auto& [text, column] : std::vector<std::pair<std::string, int>>{{"", 1},
                                                                             {"{\"a\": ", 7},
                                                                             {"{\"a\" 1}", 6},
                                                                             {"{a: 1}", 2},
                                                                             {"[1 2]", 4},
                                                                             {"[1,]", 4},
                                                                             {"01", 2},
                                                                             {"+1", 1},
                                                                             {".5", 1},
                                                                             {"1.", 3},
                                                                             {"1e", 3},
                                                                             {"nul", 1},
                                                                             {"\"a", 3},
                                                                             {"\"a\tb\"", 3},
                                                                             {"\"\\x\"", 3},
                                                                             {"\"\\u12g4\"", 6},
                                                                             {"{} {}", 4}})
    EXPECT_EQ(problem_of(text).find(concat("column ", column, ": not valid JSON: ")), 0u)
        << text << ": " << problem_of(text);
  EXPECT_NE(problem_of(std::string(5000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(problem_of(std::string("\xff\xfe{\0", 4)).find("UTF-16"), std::string::npos);
}

TEST(JsonLine, a_line_without_anything_is_known_with_its_mark) {
  for (const char* line : {"", " \t\r", "\xef\xbb\xbf", "\xef\xbb\xbf \r"}) EXPECT_TRUE(is_blank_line(line)) << line;
  for (const char* line : {"x", " {}", "\xef\xbb", " \xef\xbb\xbf"}) EXPECT_FALSE(is_blank_line(line)) << line;
  EXPECT_FALSE(is_blank_line(std::string(3, '\0'))) << "zeros are damage";
}

TEST(JsonLine, what_is_used_has_one_meaning) {
  const Value line =
      parse_json_line(R"({"a": 1, "b": {"c": "x", "d": {"e": 2}}, "b.c": "whole", "a": 2, "s": "\ud800"})");
  EXPECT_EQ(used_member(line, "none", "it"), nullptr);
  EXPECT_EQ(used_member_at(line, "b.c", "it")->as_string(), "whole");
  EXPECT_EQ(used_member_at(line, "b.d.e", "it")->as_int(), 2);
  EXPECT_EQ(used_member_at(line, "b.x", "it"), nullptr);
  EXPECT_THROW(used_member(line, "a", "it"), Error);
  EXPECT_THROW(used_text(*line.find("s"), "s", "it"), Error);
  EXPECT_EQ(used_text(parse_json_line(R"("퟿")"), "s", "it"), "\xed\x9f\xbf")
      << "the last character before surrogates";
  EXPECT_EQ(used_text(parse_json_line("\"\xed\xa0\x80\""), "s", "it"), "\xed\xa0\x80") << "bytes, not an escape";
}

TEST(PackedFile, is_refused_with_what_it_is_and_the_way_to_unpack_it) {
  const std::pair<std::string, const char*> files[] = {
      {"\x1f\x8b\x08", "gzip -dk d/x.jsonl"},    {"\x28\xb5\x2f\xfd$", "zstd -d d/x.jsonl"},
      {"PK\x03\x04", "unzip d/x.jsonl"},         {std::string("\xfd\x37zXZ\0\0\0", 8), "xz -dk d/x.jsonl"},
      {"BZh9", "bzip2 -dk d/x.jsonl"},           {"PAR1", "read_parquet(\"d/x.jsonl\")"},
      {"ARROW1", "read_feather(\"d/x.jsonl\")"}, {"PAR1", "`tools/table_to_jsonl d/x.jsonl`"}};
  for (const auto& [begin, advice] : files) {
    try {
      refuse_packed(begin, "dataset/x", "d/x.jsonl");
      ADD_FAILURE() << advice;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      for (const char* part : {"dataset/x: d/x.jsonl is ", advice})
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
  for (const char* text : {"", "{\"a\": 1}", "P", "BZ", "\x1f", "PAR", "\xef\xbb\xbf{"})
    EXPECT_NO_THROW(refuse_packed(text, "dataset/x", "d/x.jsonl")) << text;
}

TEST(Utf8, the_end_of_ascii_is_found_at_every_place) {
  for (size_t size = 0; size < 40; ++size)
    for (size_t at = 0; at <= size; ++at)
      for (size_t from = 0; from <= at; ++from) {
        std::string text(size, 'a');
        if (at < size) text[at] = '\x80';
        EXPECT_EQ(end_of_ascii(text, from), at) << size << " " << from;
      }
}

// Letters join where they are neighbours in the alphabet, the last ones first, and what they make joins nothing.
TEST(SymbolMerges, the_lowest_rank_is_joined_first_and_of_equal_ones_the_first) {
  const auto joined = [](const std::string& text) {
    SymbolMerges<int32_t> merges;
    merges.symbols.assign(text.begin(), text.end());
    merges.merge([](int32_t left, int32_t right, int32_t& made) -> uint32_t {
      made = left - 32;
      return left >= 'a' && right == left + 1 ? static_cast<uint32_t>('z' - right) : kNoRank;
    });
    return std::string(merges.symbols.begin(), merges.symbols.end());
  };
  EXPECT_EQ(joined(""), "");
  EXPECT_EQ(joined("a"), "a");
  EXPECT_EQ(joined("ab"), "A");
  EXPECT_EQ(joined("abc"), "aB");
  EXPECT_EQ(joined("abcd"), "AC");
  EXPECT_EQ(joined("ababab"), "AAA");
  EXPECT_EQ(joined("aabbcc"), "aABc");
  // Longer than what is searched from left to right: as each of its parts, between which nothing joins.
  std::string text, wanted;
  for (int i = 0; i < 50; ++i) text += "abcd.aabbcc.", wanted += "AC.aABc.";
  EXPECT_EQ(joined(text), wanted);
}

// Of one symbol again and again, pairs of pairs: the heap has many entries that no longer hold.
TEST(SymbolMerges, long_and_short_ways_are_one) {
  const auto joined = [](size_t count) {
    SymbolMerges<int32_t> merges;
    merges.symbols.assign(count, 1);
    merges.merge([](int32_t left, int32_t right, int32_t& made) -> uint32_t {
      made = left + right;
      return left == right && left < 16 ? static_cast<uint32_t>(left) : kNoRank;
    });
    return merges.symbols;
  };
  for (size_t count = 0; count < 100; ++count) {
    std::vector<int32_t> wanted(count / 16, 16);
    for (int32_t part = 8; part > 0; part /= 2)
      if (count & static_cast<size_t>(part)) wanted.push_back(part);
    EXPECT_EQ(joined(count), wanted) << count;
  }
}

TEST(PieceCache, gives_what_was_encoded_for_the_same_bytes_alone) {
  PieceCache cache;
  std::vector<std::string> pieces;
  for (const char first : {'a', 'b'})
    for (size_t size = 1; size <= 30; ++size)
      for (size_t changed = 0; changed <= size; ++changed) {
        std::string piece(size, first);
        if (changed < size) piece[changed] = '\xff';
        pieces.push_back(piece);
      }
  int encoded = 0;
  for (int round = 0; round < 2; ++round)
    for (const std::string& piece : pieces) {
      std::vector<int32_t> ids{7}, wanted{7};
      for (size_t i = 0; i < piece.size() % 12; ++i)
        wanted.push_back(static_cast<unsigned char>(piece[i]) + static_cast<int32_t>(i));
      cache.encode(piece, ids, [&] {
        ++encoded;
        ids.insert(ids.end(), wanted.begin() + 1, wanted.end());
      });
      EXPECT_EQ(ids, wanted) << round << " " << piece;
    }
  EXPECT_LT(encoded, static_cast<int>(2 * pieces.size())) << "nothing was found again";
}

}  // namespace
}  // namespace drivetrain
