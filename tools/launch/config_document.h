// A config that is no regular file - `launch -n 2 <(tool)`, a FIFO, /dev/stdin - can be read only once: the launcher
// does and hands every rank a copy.
#pragma once

#include <string>

#include "launch/rank_process.h"

namespace drivetrain::program {

struct ConfigDocument {
  Descriptor file;   // a sealed file in memory; none: ranks read the config themselves
  int number = -1;   // under which ranks find it
  std::string path;  // what they are given as CONFIG: what the user typed, where that names a descriptor
};

// Reads until the end. Throws UsageError if that does not come in time, if it cannot be read, or if it is larger than
// any config, as `train` of the same path would.
ConfigDocument read_config_once(const std::string& path);
ConfigDocument read_config_once(const std::string& path, double within_s);

// The text of a pipe or descriptor; `what` it is begins the message ("the config /dev/stdin"). The same errors.
std::string read_pipe(const std::string& path, const std::string& what, double within_s);

// Where ranks of other hosts find it, whose launcher gave `text` to this one. Throws UsageError.
ConfigDocument config_of_text(const std::string& text, int number);
std::string text_of(const ConfigDocument& document);
// Makes the document one that has the same number on every host.
void move_to_common_number(ConfigDocument& document);

}  // namespace drivetrain::program
