// What a test wants to read in a message.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace drivetrain::test {

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" does not say \"" << part << "\"";
}

}  // namespace drivetrain::test
