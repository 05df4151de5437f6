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
TEST(Pattern, a_text_that_takes_too_many_attempts_is_refused) {
  const Pattern pattern("(?:a*a*a*)?a*a*a*a*b", "test");
  EXPECT_EQ(pattern.find("xaab", 0).begin, 1u);
  const std::string error = error_of([&] { pattern.find("x" + std::string(60, 'a'), 0); });
  expect_says(error, {"test", "a*a*a*a*b", "more than 20000000 ways", "byte 1 of a text", "take a pattern without"});
}

TEST(Merges, a_piece_of_2_GiB_is_refused) {
  const size_t size = size_t{1} << 31;
  // Address space alone: nothing may read it.
  void* const space = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(space, MAP_FAILED);
  const std::string_view piece(static_cast<const char*>(space), size);
  for (const bool whole_first : {false, true}) {
    const Merges merges({}, {}, {}, whole_first);
    const OwnedCache cache = merges.make_cache();
    std::vector<int32_t> ids;
    try {
      merges.encode(piece, *cache, ids);
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
