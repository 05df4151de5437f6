// The places for ranks on this host: the k-th is for the rank that has the k-th GPU. One whose rank failed again and
// again is left out, and the ranks move together.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

class Slots {
 public:
  explicit Slots(int count);

  int count() const { return static_cast<int>(usable_.size()); }  // that can be used
  int of_rank(int rank) const { return usable_.at(static_cast<size_t>(rank)); }
  void leave_out(int slot);
  // Variables that show `ranks` ranks the GPUs of their slots: CUDA_VISIBLE_DEVICES, once a slot was left out.
  // `visible`: its value now, or null.
  std::vector<std::string> environment(int ranks, const char* visible) const;

 private:
  std::vector<int> usable_;
  bool complete_ = true;
};

}  // namespace drivetrain::program
