// Which ranks are slower than those that do the same work, and in which part of the step, from how long each works by
// itself (own_work.h). Pure: no clock, no communication. Thread: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "flight/own_work.h"
#include "internal.h"

namespace drivetrain {

struct StragglerRule {
  double factor = 1.5;   // times the median; 0: nobody is looked at
  int64_t steps = 20;    // over so many of the last steps
  double least_s = 0.1;  // slower than the median by so many seconds a step
};

struct Straggler {
  int64_t rank = 0;
  double own_s = 0, median_s = 0;  // a step
  WorkPart part = WorkPart::data;  // in which it loses most
  double lost_s = 0;               // a step, there
  std::vector<int64_t> compared;   // ranks that do the same work, itself among them
  int64_t steps = 0;
};

// The median is the lower one: of two ranks the faster, so that half of the ranks may be slow and are still found.
//
// What is noise to others is none here: a rank is a straggler if, over the last `steps` steps, its work is `factor`
// times the median and `least_s` longer in each step on average, and if it was beyond `factor` in at least half of
// these steps, so that a single long pause is nobody's habit.
class DRIVETRAIN_INTERNAL StragglerJudge {
 public:
  // `alike`: sets of ranks that do the same work. A rank in a set of its own is not judged.
  StragglerJudge(const StragglerRule& rule, std::vector<std::vector<int64_t>> alike);

  struct News {
    std::vector<Straggler> found;    // each once, until it has recovered
    std::vector<int64_t> recovered;  // ranks that were found and are as quick as the others again
  };
  // The work of all ranks in a further step, by rank.
  News step(const std::vector<WorkSeconds>& ranks);

 private:
  struct Rank {
    WorkSeconds sum = {};  // over the window
    int64_t slow_steps = 0;
    bool named = false;
  };
  struct Step {
    std::vector<WorkSeconds> work;
    std::vector<char> slow;  // by rank
  };
  void add(const Step& step, int sign);
  Step with_slow(const std::vector<WorkSeconds>& ranks) const;
  void judge(const std::vector<int64_t>& set, News& news);
  bool is_straggler(const Rank& rank, double median) const;
  Straggler found(int64_t number, const std::vector<int64_t>& set, double median) const;

  const StragglerRule rule_;
  const std::vector<std::vector<int64_t>> alike_;
  std::vector<Rank> ranks_;
  std::deque<Step> window_;
};

// The ranks of a mesh that differ in no coordinate but those of `cut_axes` (indices of `sizes`, fastest axis first):
// they do the same work on other rows of the batch.
DRIVETRAIN_INTERNAL std::vector<std::vector<int64_t>> ranks_alike(const std::vector<int64_t>& sizes,
                                                                  const std::vector<size_t>& cut_axes);

// "reading data", "the optimizer"
DRIVETRAIN_INTERNAL const char* name_of(WorkPart part);

// "rank 3 on host b is a straggler: its own work takes 1.8 times the median of ranks 0-3, which do the same work, over
// the last 20 steps (0.900 s against 0.500 s a step); most of the difference, 0.390 s a step, is in reading data".
// `host` may be empty; `plugin`: who is at work in that part, or empty.
DRIVETRAIN_INTERNAL std::string straggler_text(const Straggler& s, const std::string& host, const std::string& plugin);

}  // namespace drivetrain
