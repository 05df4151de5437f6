// The conformance suite of checkpoint_format finds what it is there for: mistakes round about a right format, each
// found by the case that is meant for it.
#include <algorithm>
#include <filesystem>
#include <set>

#include <drivetrain/testkit/checkpoint_format/suite.h>
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

class MistakenContents final : public Checkpoint {
 public:
  MistakenContents(std::shared_ptr<const Checkpoint> right, std::string mistake)
      : right_(std::move(right)), mistake_(std::move(mistake)), facts_(right_->facts()) {
    if (mistake_ == "forgets_the_naming") facts_.erase("naming");
    if (mistake_ == "forgets_the_updates") facts_.erase("updates");
    if (mistake_ == "counts_the_step_wrongly") facts_.set("step", 13);
  }
  const Value& facts() const override { return facts_; }
  std::vector<StoredTensor> tensors() const override {
    auto list = right_->tensors();
    if (mistake_ == "does_not_sort") std::reverse(list.begin(), list.end());
    if (mistake_ == "forgets_a_weight")
      std::erase_if(list, [](const StoredTensor& t) { return t.name == "model/b.bias"; });
    return list;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    StateBox from = box;
    if (mistake_ == "reads_from_the_first_row") from.row = 0;
    right_->read(name, from, into);
  }
  std::vector<std::string> verify() const override {
    return mistake_ == "always_has_a_problem" ? std::vector<std::string>{"is fine"} : right_->verify();
  }

 private:
  const std::shared_ptr<const Checkpoint> right_;
  const std::string mistake_;
  Value facts_;
};

class MistakenFormat final : public CheckpointFormat {
 public:
  MistakenFormat(std::shared_ptr<CheckpointFormat> right, std::string mistake)
      : right_(std::move(right)), mistake_(std::move(mistake)) {}
  std::string recognizes(const std::string& folder) const override {
    if (mistake_ == "recognizes_anything" && fs::exists(folder)) return "anything";
    return mistake_ == "recognizes_nothing" ? "" : right_->recognizes(folder);
  }
  std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string& tag) const override {
    try {
      return std::make_shared<MistakenContents>(right_->open(folder, mistake_ == "takes_any_tag" ? "" : tag), mistake_);
    } catch (const Error& e) {
      if (mistake_ == "calls_damage_its_own_error") throw Error(ErrorCode::internal, e.what());
      throw;
    }
  }
  bool writes() const override { return right_->writes(); }
  void write(const std::string& folder, const Checkpoint& state) const override { right_->write(folder, state); }

 private:
  const std::shared_ptr<CheckpointFormat> right_;
  const std::string mistake_;
};

TEST(CheckpointFormatSuite, finds_every_mistake) {
  const char* const recognizes = "recognizes_its_own_folders_and_no_others";
  const char* const comes_back = "what_it_writes_comes_back";
  const char* const holds = "tells_what_it_holds";
  const std::vector<PlantedMistake> mistakes = {
      {"recognizes_anything", recognizes, "an empty folder"},
      {"recognizes_nothing", recognizes, "is one of this format"},
      {"forgets_a_weight", comes_back, "values after a write"},
      {"counts_the_step_wrongly", comes_back, "the fact step"},
      {"always_has_a_problem", comes_back, "just written"},
      {"reads_from_the_first_row", "any_box_is_read", "a box of"},
      {"forgets_the_naming", holds, "the fact naming"},
      {"forgets_the_updates", holds, "without updates"},
      {"does_not_sort", holds, "sorted by name"},
      {"takes_any_tag", "refuses_a_tag_that_is_not_there", "a tag that is not there"},
      {"calls_damage_its_own_error", "damage_is_refused", "another error"},
  };
  Host host;
  std::string name;  // of one that writes
  for (const std::string& one : installed_plugins().names(CheckpointFormat::kKind))
    if (installed_plugins().make<CheckpointFormat>(one, "{}", host.services)->writes()) name = one;
  ASSERT_FALSE(name.empty());
  const auto run = [&](const char* found_by, const std::string& mistake) {
    return failures_of([&] {
      run_checkpoint_format_case(found_by,
                                 [&] {
                                   return std::make_shared<MistakenFormat>(
                                       installed_plugins().make<CheckpointFormat>(name, "{}", host.services), mistake);
                                 },
                                 {});
    });
  };
  std::set<std::string> right;
  for (const PlantedMistake& planted : mistakes) {
    if (right.insert(planted.found_by).second) {
      EXPECT_EQ(run(planted.found_by, ""), "") << planted.found_by << " of a right format";
    }
    expect_found(planted, run(planted.found_by, planted.name));
  }
}

}  // namespace
}  // namespace drivetrain::test
