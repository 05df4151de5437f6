// What reaches a terminal from files and names: nothing that moves, recolours or turns around.
#include "base/printable.h"

#include <gtest/gtest.h>

namespace drivetrain {
namespace {

TEST(Printable, text_of_every_language_stays) {
  for (const char* text : {"", "plain", "a\nb\tc", "Gr\u00fc\u00dfe", "\u6f22\u5b57", "\U0001f600"})
    EXPECT_EQ(printable(text), text);
  EXPECT_EQ(one_line("a\nb\tc"), "a\\x0ab\\x09c");
}

TEST(Printable, what_acts_on_the_terminal_or_hides_is_escaped) {
  EXPECT_EQ(printable("\033[2Jx\r\b\x7f"), "\\x1b[2Jx\\x0d\\x08\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b31m"), "\\x9b31m") << "C1 as a character";
  EXPECT_EQ(printable("\u202eabc\u2066\u200b\u2028\ufeff"), "\\u202eabc\\u2066\\u200b\\u2028\\ufeff");
  EXPECT_EQ(printable("\U000e0041"), "\\U000e0041");
}

TEST(Printable, bytes_that_are_no_text_are_escaped) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m")
      << "C1 as a byte";
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "not the shortest form";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half a surrogate";
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  EXPECT_EQ(printable("\xe6\xbc"), "\\xe6\\xbc") << "cut off";
}

TEST(Printable, a_long_name_is_shortened_between_whole_characters) {
  EXPECT_EQ(shown(std::string(160, 'x')), std::string(160, 'x'));
  const std::string cut = shown(std::string(1000, 'x'));
  EXPECT_EQ(cut, std::string(60, 'x') + "...(1000 bytes)..." + std::string(60, 'x'));
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "\u6f22";
  EXPECT_EQ(shown(wide).find("\\x"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
