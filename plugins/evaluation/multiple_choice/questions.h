// Questions with choices, one per line of JSON. The options say what the fields are called. Values; main thread. Errors
// name the file and the line: Error(io) where it cannot be read, Error(config) where a field is not what it should be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::multiple_choice {

// How a line is read. A field is named by its key, or by keys with dots between them where it lies in further objects.
struct Fields {
  std::string prompt = "{context}";  // the text before the choices; {NAME} stands for the field
  std::string choices = "choices";   // the field with the list of texts
  std::string label = "label";       // the field with the right one: its number from 0, or its name
  std::string names;                 // the field with the names of the choices; "": A, B, C, ...
};

struct Question {
  std::string prompt;
  std::vector<std::string> choices;
  int64_t right = 0;
  std::string where;  // "file:line"
};

// All questions of the files, at most `limit` of them. Empty lines are left out.
std::vector<Question> read_questions(const std::vector<std::string>& files, const Fields& fields,
                                     std::optional<int64_t> limit);

}  // namespace drivetrain::multiple_choice
