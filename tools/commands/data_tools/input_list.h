// Which files a preparation reads, and how it reads each of them.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/log.h>

#include "data_tools/text_inputs.h"
#include "internal.h"

namespace drivetrain {

// automatic: by the ending of the name; .jsonl, .jsonlines, .ndjson and .json have a document per line.
enum class TextFormat { automatic, json_lines, text };
std::string text_format_words(TextFormat format);  // for the progress file and messages

// What patterns and folders stand for, in the order given; within a pattern and within a folder by name; every file
// once. What preparations make, that to `output` and others, is no text: it is left out of folders and patterns, with
// a line in the log. Error(config) for such a file given by its name, for a pattern without a file, for a compressed
// file, and for a file that the format `automatic` would take as one text and that looks like JSON.
DRIVETRAIN_INTERNAL std::vector<TextInput> list_inputs(const std::vector<std::string>& patterns, TextFormat format,
                                                       const std::string& output, Log& log);

}  // namespace drivetrain
