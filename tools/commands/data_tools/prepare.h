// `data prepare`: texts into token files. The output depends on inputs and options alone, not on threads or restarts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <drivetrain/log.h>

#include "data_tools/input_list.h"
#include "internal.h"
#include "shared/open_tokenizer.h"

namespace drivetrain {

struct PrepareRequest {
  std::vector<std::string> inputs;  // files, folders, patterns
  std::string output;               // prefix of the files
  TextFormat format = TextFormat::automatic;
  std::string json_key = "text";
  bool json_key_given = false;  // then an input has to use it, as it has to use skip_broken
  std::vector<int32_t> begin;   // in front of every document
  bool append_eod = false;
  int32_t eod = 0;
  bool skip_broken = false;
  int64_t threads = 1;
  double seconds_between_saves = 2;  // of the place at which a killed preparation goes on
  // Texts that were read and are not written yet: at most so many, or one alone that is larger.
  uint64_t bytes_in_flight = uint64_t{256} << 20;
};

struct PrepareResult {
  uint64_t documents = 0, tokens = 0, empty = 0, broken = 0;
  uint64_t text_bytes = 0;     // of all inputs, unpacked
  uint64_t skipped_bytes = 0;  // of these, what an earlier preparation had done
  double seconds = 0;
  std::string type;
};

// Error(config) if the files are there already, or an unfinished preparation of something else; Error(io) for inputs
// and disk, and for a line that is not as it should be, naming file and line.
DRIVETRAIN_INTERNAL PrepareResult prepare(const PrepareRequest& request, const OpenedTokenizer& opened, Log& log);

}  // namespace drivetrain
