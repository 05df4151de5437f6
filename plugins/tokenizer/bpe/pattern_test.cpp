// Patterns of pre-tokenizers, and pieces so long that nothing encodes them.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <drivetrain/testkit/kit/host.h>

#include "merges.h"
#include "pieces.h"

namespace drivetrain::bpe {
namespace {

using test::error_of;
using Texts = std::vector<std::string>;

Texts pieces_of(const std::string& expression, Cut::Kind kind, const std::string& text) {
  Cut cut{.kind = kind};
  cut.patterns.emplace_back(expression, "test");
  std::vector<Cut> cuts;
  cuts.push_back(std::move(cut));
  const Pieces pieces(std::move(cuts));
  Texts found;
  pieces.each(text, [&](std::string_view piece) {
    if (found.size() < 100) found.emplace_back(piece);
  });
  return found;
}

std::string refusal(const std::string& expression) {
  return error_of([&] { Pattern(expression, "test"); });
}

void expect_says(const std::string& error, const Texts& words) {
  EXPECT_NE(error, "") << "nothing was refused";
  for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << word << " in: " << error;
}

// What Split of Hugging Face's tokenizers 0.23.3 makes of these texts, Isolated and Removed with invert.
TEST(Pattern, a_match_without_characters_cuts_where_it_stands) {
  struct Case {
    const char *pattern, *text;
    Texts isolated, only_matches;
  };
  const std::string mixed = "abcaab Bb 1A";
  const Case cases[] = {
      {"(?=[A-Z])", "helloWorldFoo", {"hello", "World", "Foo"}, {}},
      {"\\s*(?=x)", "A b  x xx", {"A b", "  ", "x", " ", "x", "x"}, {"  ", " "}},
      {"a*", "éaaé", {"é", "aa", "é"}, {"aa"}},
      {"[ab]*(?=c)", "abcabC", {"ab", "cabC"}, {"ab"}},
      {"(?=[A-Z])|b+", "bbAbB", {"bb", "A", "b", "B"}, {"bb", "b"}},
      {"x?(?!y)", "xyxz", {"xy", "x", "z"}, {"x"}},
      {"", "ab é", {"a", "b", " ", "é"}, {}},
      {"a|", "abcaab", {"a", "b", "c", "a", "a", "b"}, {"a", "a", "a"}},
      {"(?:a|)(?=b)", mixed.c_str(), {"a", "bca", "a", "b B", "b 1A"}, {"a", "a"}},
      {"(?:ab)?", mixed.c_str(), {"ab", "c", "a", "ab", " ", "B", "b", " ", "1", "A"}, {"ab", "ab"}},
      {"a?+(?=a)", mixed.c_str(), {"abc", "a", "ab Bb 1A"}, {"a"}},
      {"(?!a)", mixed.c_str(), {"a", "b", "caa", "b", " ", "B", "b", " ", "1", "A"}, {}},
      {" ?(?=[A-Z])|\\p{N}", mixed.c_str(), {"abcaab", " ", "Bb ", "1", "A"}, {" ", "1"}},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(pieces_of(one.pattern, Cut::Kind::pattern, one.text), one.isolated) << one.pattern;
    EXPECT_EQ(pieces_of(one.pattern, Cut::Kind::only_matches, one.text), one.only_matches) << one.pattern;
  }
}

TEST(Pattern, groups_within_each_other_have_a_limit) {
  const auto nested = [](size_t depth) { return std::string(depth, '(') + "a" + std::string(depth, ')'); };
  EXPECT_EQ(refusal(nested(64)), "");
  expect_says(refusal(nested(65)), {"test", "64", "character 65"});
  const std::string error = refusal(std::string(100'000, '('));
  expect_says(error, {"test", "64"});
  EXPECT_LT(error.size(), 1000u) << "the pattern is shown by its beginning";
}

TEST(Pattern, elements_have_a_limit) {
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "a?";
  expect_says(refusal(many), {"test", "1000"});
}

TEST(Pattern, a_pattern_that_ends_too_early_is_refused) {
  for (const char* pattern : {"(?=", "(?!", "a(?=", "[", "[a", "\\", "\\p", "\\p{", "a{", "a{1", "(", "(?:", "(?i:"})
    expect_says(refusal(pattern), {"test", pattern});
  for (const char* pattern : {"(?=", "(?!"}) expect_says(refusal(pattern), {"end that is too early"});
}

// In a lookahead these are no characters: `(?=|)` looks for nothing or nothing.
TEST(Pattern, signs_of_alternatives_and_groups_are_no_characters) {
  for (const char* pattern : {"(?=|)", "(?=()", "(?!|)"}) expect_says(refusal(pattern), {"test", pattern});
  for (const char* pattern : {"(?=\\|)", "(?=[(])"}) EXPECT_EQ(refusal(pattern), "");
}

// Seven repeats share 60 characters in 400 million ways, none of which ends with the b.
TEST(Pattern, repeats_that_share_characters_in_many_ways_are_no_more_work) {
  const Pattern pattern("(?:a*a*a*)?a*a*a*a*b", "test");
  EXPECT_EQ(pattern.find("xaab", 0).begin, 1u);
  EXPECT_EQ(pattern.find("x" + std::string(60, 'a'), 0).begin, Pattern::kNone);
}

TEST(Pattern, a_text_that_is_read_over_and_over_is_refused) {
  const Pattern pattern("a*b", "test");
  const std::string error = error_of([&] { pattern.find("x" + std::string(12'000, 'a'), 0); });
  expect_says(error, {"test", "a*b", "more than 50000000 bytes", "behind byte 0 of a text", "take a pattern without"});
  EXPECT_EQ(pattern.find("x" + std::string(12'000, 'a') + "b", 0).end, 12'002u);
}

// A repeat that gives nothing back, in every form, beside those that do.
TEST(Pattern, possessive_repeats_give_nothing_back) {
  struct Case {
    const char *pattern, *text;
    size_t begin, end;
  };
  const Case cases[] = {
      {"a++b", "aab", 0, 3},          {"a++a", "aaa", Pattern::kNone, 0},
      {"a+a", "aaa", 0, 3},           {"a?+ab", "ab aab", 3, 6},
      {"a?ab", "ab aab", 0, 2},       {"a*+(?!b)", "aabac", 3, 4},
      {"a*(?!b)", "aabac", 0, 1},     {"(?:a|ab)c?", "abc", 0, 1},
      {"(?:ab|a)c?", "abc", 0, 3},    {"a{2,3}a", "aaa", 0, 3},
      {"a{2}b", "aaab", 1, 4},        {"(?:a?+|b)(?=b)", "aabb", 1, 2},
      {"\\p{L}{1,2}|é", "éaé", 0, 3}, {"[^a]+(?=a)", "é中a", 0, 5},
      {"x(?=y)|x", "xxy", 0, 1},
  };
  for (const Case& one : cases) {
    const Pattern::Match found = Pattern(one.pattern, "test").find(one.text, 0);
    EXPECT_EQ(found.begin, one.begin) << one.pattern;
    if (found.begin != Pattern::kNone) {
      EXPECT_EQ(found.end, one.end) << one.pattern;
    }
  }
}

TEST(Pattern, repeats_that_need_too_large_a_table_are_refused) {
  expect_says(refusal("a{1,200000}"), {"test", "a{1,200000}", "65536 steps"});
  EXPECT_EQ(refusal("a{1,2000}b"), "");
  expect_says(refusal("[ab]*a[ab]{30}"), {"test", "too large a table"});
}

TEST(Merges, a_piece_of_2_GiB_is_refused) {
  const size_t size = size_t{1} << 31;
  // Address space alone: nothing may read it.
  void* const space = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(space, MAP_FAILED);
  const std::string_view piece(static_cast<const char*>(space), size);
  for (const bool whole_first : {false, true}) {
    const Merges merges({}, {}, {}, whole_first);
    Merges::Workspace work;
    std::vector<int32_t> ids;
    try {
      merges.encode(piece, work, ids);
      ADD_FAILURE() << "it was encoded";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      expect_says(e.what(), {"2147483648"});
    }
  }
  ::munmap(space, size);
}

}  // namespace
}  // namespace drivetrain::bpe
