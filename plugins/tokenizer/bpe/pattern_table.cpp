#include "pattern_table.h"

#include <algorithm>
#include <map>

#include <drivetrain/error.h>

namespace drivetrain::bpe {
namespace {

// Far above what published patterns need: 300 steps, and 50,000 looks at one.
constexpr size_t kMostSteps = 65'536;
constexpr uint64_t kMostWork = 10'000'000;

using Sets = std::vector<const CharacterSet*>;

size_t place_of(const CharacterSet* set, const Sets& sets) {
  return static_cast<size_t>(std::find(sets.begin(), sets.end(), set) - sets.begin());
}

void collect(const std::vector<PatternItems>& alternatives, Sets& sets) {
  for (const PatternItems& items : alternatives)
    for (const PatternItem& item : items) {
      if (item.set && place_of(item.set.get(), sets) == sets.size()) sets.push_back(item.set.get());
      collect(item.group, sets);
    }
}

Sets sets_of(const std::vector<PatternItems>& alternatives) {
  Sets sets;
  collect(alternatives, sets);
  return sets;
}

// A step of the pattern. What stands for `first` is tried before what stands for `second`.
struct Step {
  enum class Kind { done, take, fork, ahead, not_ahead };
  Kind kind = Kind::done;
  size_t set = 0;
  uint32_t first = 0, second = 0;
};

// The pattern as steps, from its end on, since each step names the one behind it.
class Program {
 public:
  Program(const std::vector<PatternItems>& alternatives, Sets sets, const std::string& name)
      : sets_(std::move(sets)), name_(name) {
    begin_ = any_of(alternatives, add({}));
  }
  uint32_t begin() const { return begin_; }
  const Step& operator[](uint32_t at) const { return steps_[at]; }
  size_t size() const { return steps_.size(); }

 private:
  uint32_t add(Step step) {
    if (steps_.size() == kMostSteps)
      throw fail(ErrorCode::config, name_, " has more than ", kMostSteps,
                 " steps, all repeats counted; take a shorter one");
    steps_.push_back(step);
    return static_cast<uint32_t>(steps_.size() - 1);
  }
  uint32_t fork(uint32_t first, uint32_t second) { return add({Step::Kind::fork, 0, first, second}); }

  uint32_t any_of(const std::vector<PatternItems>& alternatives, uint32_t behind) {
    uint32_t begin = all_of(alternatives.back(), behind);
    for (size_t i = alternatives.size() - 1; i-- > 0;) begin = fork(all_of(alternatives[i], behind), begin);
    return begin;
  }
  uint32_t all_of(const PatternItems& items, uint32_t behind) {
    for (size_t i = items.size(); i-- > 0;) behind = one(items[i], behind);
    return behind;
  }
  uint32_t one(const PatternItem& item, uint32_t behind) {
    if (item.kind == PatternItem::Kind::group) {
      const uint32_t begin = any_of(item.group, behind);
      return item.least == 0 ? fork(begin, behind) : begin;
    }
    const size_t set = place_of(item.set.get(), sets_);
    if (item.kind == PatternItem::Kind::ahead) return add({Step::Kind::ahead, set, behind});
    if (item.kind == PatternItem::Kind::not_ahead) return add({Step::Kind::not_ahead, set, behind});
    // A possessive repeat ends early only where no further character of the set follows.
    const bool possessive = item.kind == PatternItem::Kind::possessive && item.most > item.least;
    const uint32_t early = possessive ? add({Step::Kind::not_ahead, set, behind}) : behind;
    uint32_t begin = behind;
    if (item.most == kNoLimit) {
      begin = fork(0, early);
      steps_[begin].first = add({Step::Kind::take, set, begin});
    } else {
      for (uint32_t i = item.least; i < item.most; ++i) begin = fork(add({Step::Kind::take, set, begin}), early);
    }
    for (uint32_t i = 0; i < item.least; ++i) begin = add({Step::Kind::take, set, begin});
    return begin;
  }

  const Sets sets_;
  const std::string& name_;
  std::vector<Step> steps_;
  uint32_t begin_;
};

// The steps that a pattern may be at behind the same text, those that are tried first in front.
using State = std::vector<uint32_t>;

class Builder {
 public:
  Builder(const Program& program, const CharacterClasses& classes, const std::string& name)
      : program_(program), classes_(classes), name_(name), seen_(program.size()), kept_(program.size()) {}

  std::vector<uint32_t> table() {
    number({});
    number({program_.begin()});
    std::vector<uint32_t> made;
    for (size_t at = 0; at < states_.size(); ++at) {
      const State from = *states_[at];
      for (uint32_t of = 0; of <= classes_.count(); ++of) {
        const bool matches = follow(from, of);
        made.push_back(number(next_) * (classes_.count() + 1) << 1 | (matches ? 1u : 0u));
      }
    }
    return made;
  }

 private:
  uint32_t number(const State& state) {
    const auto [found, fresh] = numbers_.emplace(state, static_cast<uint32_t>(states_.size()));
    if (fresh) states_.push_back(&found->first);
    return found->second;
  }

  // From a state over a character of a class, or the end of the text: sets next_; true if a match ends in front of it.
  // What would be tried after a match is left out.
  bool follow(const State& from, uint32_t of) {
    ++now_;
    next_.clear();
    for (const uint32_t begin : from) {
      waiting_.assign(1, begin);
      while (!waiting_.empty()) {
        const uint32_t at = waiting_.back();
        waiting_.pop_back();
        if (++work_ > kMostWork)
          throw fail(ErrorCode::config, name_,
                     " needs too large a table; take a shorter pattern, or smaller numbers of repeats");
        if (seen_[at] == now_) continue;
        seen_[at] = now_;
        const Step& step = program_[at];
        const auto in_set = [&] { return of < classes_.count() && classes_.has(step.set, of); };
        switch (step.kind) {
          case Step::Kind::done:
            return true;
          case Step::Kind::take:
            if (in_set() && kept_[step.first] != now_) kept_[step.first] = now_, next_.push_back(step.first);
            break;
          case Step::Kind::fork:
            waiting_.push_back(step.second);
            waiting_.push_back(step.first);
            break;
          case Step::Kind::ahead:
            if (in_set()) waiting_.push_back(step.first);
            break;
          case Step::Kind::not_ahead:
            if (!in_set()) waiting_.push_back(step.first);
            break;
        }
      }
    }
    return false;
  }

  const Program& program_;
  const CharacterClasses& classes_;
  const std::string& name_;
  std::map<State, uint32_t> numbers_;
  std::vector<const State*> states_;
  State next_, waiting_;
  std::vector<uint32_t> seen_, kept_;  // when a step was last looked at, and last put into next_
  uint32_t now_ = 0;
  uint64_t work_ = 0;
};

}  // namespace

PatternTable::PatternTable(const std::vector<PatternItems>& alternatives, const std::string& name)
    : classes_(sets_of(alternatives), name), end_of_text_(classes_.count()) {
  const Program program(alternatives, sets_of(alternatives), name);
  table_ = Builder(program, classes_, name).table();
}

}  // namespace drivetrain::bpe
