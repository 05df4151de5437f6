// What every tokenizer must do: append, give ids of its vocabulary, take any bytes, say the truth about what comes
// back, and give the same ids in every call on every thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/tokenizer.h>

#include <drivetrain/testkit/kit/suite.h>

namespace drivetrain::test {

// The options of the subject name its files, where it needs any.
Suite tokenizer_suite();

// Texts of all kinds: scripts, white space, long runs, source code, bytes that are not UTF-8.
std::vector<std::string> tokenizer_texts();

}  // namespace drivetrain::test
