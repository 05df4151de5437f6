// Passes on what a rank wrote and remembers the last lines. With a prefix ("[rank 1] ") only whole lines are
// passed, so that ranks do not mix; without one the bytes pass as they come. From "drivetrain:
// error: " on, which is a rank's last word, prefixed lines are held back: often all ranks have the same to say, and
// that once is enough. More than 64 KB are no last word and are passed. Bytes are passed as they are, text or not.
#pragma once

#include <deque>
#include <string>

#include "launch/outlet.h"

namespace drivetrain::program {

class LineRelay {
 public:
  LineRelay(Outlet& to, std::string prefix) : to_(&to), prefix_(std::move(prefix)) {}

  // What comes goes elsewhere, to a log, and here only an error.
  void pass_errors_only() { errors_only_ = true; }
  bool passes_errors_only() const { return errors_only_; }

  void take(const std::string& bytes);
  void finish();  // there is no more
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  const std::string& error() const { return error_; }  // what began with "drivetrain: error: "; empty: nothing did
  void pass_error();                                   // what was held back; nothing where nothing was

 private:
  void end_line();
  std::string take_error();  // with the prefix; from now on it is passed

  Outlet* to_;
  std::string prefix_;
  std::string line_, ready_, error_;
  bool error_passed_ = false, errors_only_ = false;
  std::deque<std::string> last_lines_;
};

}  // namespace drivetrain::program
