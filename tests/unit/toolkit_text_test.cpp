// The pieces of text that messages are made of.
#include <drivetrain/toolkit/text.h>

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace drivetrain {
namespace {

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

}  // namespace
}  // namespace drivetrain
