// Passes on what a rank writes to a pipe and remembers the last lines. With a prefix ("[rank 1] ") only whole lines are
// passed, so that ranks do not mix; without one the bytes pass as they come. From "drivetrain:
// error: " on, which is a rank's last word, prefixed lines are held back: often all ranks have the same to say, and
// that once is enough. More than 64 KB are no last word and are passed. Bytes are passed as they are, text or not.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "launch/outlet.h"
#include "launch/rank_process.h"

namespace drivetrain::program {

class LineRelay {
 public:
  using Listener = std::function<void(const std::string&)>;
  // from: the read end of a pipe, not blocking; none: what `take` is given. to: null: nowhere. `listener` gets every
  // byte as it comes.
  LineRelay(Descriptor from, Outlet* to, std::string prefix, Listener listener = {})
      : from_(std::move(from)), to_(to), prefix_(std::move(prefix)), listener_(std::move(listener)) {}

  // What comes goes elsewhere, to a log, and here only an error.
  void pass_errors_only() { errors_only_ = true; }
  bool passes_errors_only() const { return errors_only_; }

  int fd() const { return from_.get(); }  // -1 once the other side has closed it
  bool pass();                            // what is there now, up to 64 KB; false: nothing
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  const std::string& error() const { return error_; }  // what began with "drivetrain: error: "; empty: nothing did
  void pass_error();                                   // what was held back; nothing where nothing was

  // For a relay without a pipe: what was written, and that there is no more.
  void take(const std::string& bytes);
  void finish();

 private:
  void put(const std::string& text);
  void end_line();
  std::string take_error();  // with the prefix; from now on it is passed

  Descriptor from_;
  Outlet* to_;
  std::string prefix_;
  Listener listener_;
  std::string line_, ready_, error_;
  bool error_passed_ = false, errors_only_ = false;
  std::deque<std::string> last_lines_;
};

}  // namespace drivetrain::program
