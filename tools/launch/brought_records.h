// Flight records of ranks on other hosts, which their agents send when the run does not go on or has ended badly: into
// the folder that the run has on this host, so that `drivetrain flight` finds all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

namespace drivetrain::program {

class BroughtRecords {
 public:
  // `say`: what went wrong, for the user.
  explicit BroughtRecords(std::function<void(const std::string&)> say) : say_(std::move(say)) {}

  // Writes it at once. A rank that keeps its record in this folder by itself is left alone.
  void take(int rank, const std::string& bytes);
  // After the run: why a rank has no record here. Nothing is noted where no record came, nor for a rank that has one.
  void missing(int rank, const std::string& why);
  // After a good end, before which it was said that the run does not go on.
  void forget();
  bool any() const { return !written_.empty(); }
  // "ranks 2 and 3": whose records were written here.
  std::string ranks() const;
  const std::string& folder() const { return folder_; }  // of the run; "": no record has come

 private:
  bool is_here(int rank) const;
  void open_folder();
  void write(const std::string& name, const std::string& bytes);

  const std::function<void(const std::string&)> say_;
  uint64_t run_ = 0;
  std::string folder_;
  std::map<int, std::string> early_;  // that do not know the folder
  std::set<int> written_;
  bool failed_ = false;
};

}  // namespace drivetrain::program
