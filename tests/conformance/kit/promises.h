// The sentence of the contract that each case holds a plugin to, from KIND/promises.txt. Thread: any.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::test {

struct Promise {
  std::string header, sentence;  // "optimizer.h", and words of it
  std::string text() const { return sentence.empty() ? "" : header + ": \"" + sentence + "\""; }
};

// Empty where no line names the case.
Promise promise_of(const std::string& kind, const std::string& name);
// Names of the cases that have a line, sorted.
std::vector<std::string> promised_cases(const std::string& kind);

}  // namespace drivetrain::test
