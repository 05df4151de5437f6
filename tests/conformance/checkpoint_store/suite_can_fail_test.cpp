// The conformance suite of checkpoint_store finds what it is there for: mistakes round about a right store, each found
// by the case that is meant for it.
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <set>

#include <drivetrain/testkit/checkpoint_store/suite.h>
#include "support/mistakes.h"

namespace drivetrain::test {
namespace {

class MistakenCheckpoint : public Checkpoint {
 public:
  MistakenCheckpoint(std::shared_ptr<const Checkpoint> right, const std::string& mistake)
      : right_(std::move(right)), mistake_(mistake) {}

  const Value& facts() const override {
    static const Value none = Value::object();
    return mistake_ == "forgets_the_facts" ? none : right_->facts();
  }
  std::vector<StoredTensor> tensors() const override {
    auto list = right_->tensors();
    if (mistake_ == "tells_the_wrong_dtype") list.back().dtype = at::kFloat;
    if (mistake_ == "does_not_sort_its_tensors") std::reverse(list.begin(), list.end());
    return list;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    if (mistake_ == "reads_nothing_where_nothing_is" && name == "block.1.weight") return;
    StateBox from = box;
    if (mistake_ == "takes_a_box_from_the_first_row") from.row = 0;
    if (mistake_ == "ignores_strides" && !into.is_contiguous()) {
      const at::Tensor plain = at::empty_like(into, at::MemoryFormat::Contiguous);
      right_->read(name, from, plain);
      return static_cast<void>(into.t().view({-1}).copy_(plain.view({-1})));
    }
    right_->read(name, from, into);
  }
  std::vector<std::string> verify() const override {
    return mistake_ == "verifies_nothing" ? std::vector<std::string>{} : right_->verify();
  }

 private:
  const std::shared_ptr<const Checkpoint> right_;
  const std::string mistake_;
};

class MistakenStore : public CheckpointStore {
 public:
  MistakenStore(std::shared_ptr<CheckpointStore> right, const std::string& mistake)
      : right_(std::move(right)), mistake_(mistake) {}

  void open_place(const std::string& output_dir, bool owner) override {
    right_->open_place(output_dir, owner && mistake_ != "leaves_killed_saves");
  }
  std::vector<StoredTag> tags() const override {
    auto list = right_->tags();
    if (mistake_ == "lists_the_oldest_first") std::reverse(list.begin(), list.end());
    if (mistake_ == "tells_no_time")
      for (StoredTag& tag : list) tag.saved_at = 0;
    return list;
  }
  std::shared_ptr<const Checkpoint> open(const std::string& tag) const override {
    try {
      return std::make_shared<MistakenCheckpoint>(right_->open(tag), mistake_);
    } catch (const Error& e) {
      if (mistake_ != "says_io_for_a_missing_tag") throw;
      throw Error(ErrorCode::io, e.what());
    }
  }
  Value write(Snapshot& snapshot) override {
    Snapshot copy = snapshot;
    const Value part = right_->write(copy);
    if (mistake_ != "keeps_the_slices") snapshot = std::move(copy);
    if (mistake_ == "commits_when_it_writes" && snapshot.world_size == snapshot.rank + 1 && parts_.size() == 2)
      right_->commit(snapshot.tag, snapshot.step, Value::object(), {parts_[0], parts_[1], part});
    parts_.push_back(part);
    if (snapshot.rank == 0) parts_ = {part};
    return part;
  }
  void commit(const std::string& tag, int64_t step, const Value& facts, const std::vector<Value>& parts) override {
    if (mistake_ != "commits_when_it_writes" || parts.size() != 3) right_->commit(tag, step, facts, parts);
  }
  void discard(const std::string& tag) noexcept override {
    if (mistake_ != "discards_nothing") right_->discard(tag);
    if (mistake_ == "discards_the_tag" && tag == "a") right_->remove(tag);
  }
  void remove(const std::string& tag) override {
    if (mistake_ != "removes_nothing") right_->remove(tag);
  }
  std::vector<StoreProblem> problems() const override {
    auto list = right_->problems();
    if (mistake_ == "names_no_damage") std::erase_if(list, [](const StoreProblem& p) { return !p.left_over; });
    if (mistake_ == "names_no_left_overs") std::erase_if(list, [](const StoreProblem& p) { return p.left_over; });
    if (mistake_ == "always_has_a_problem") list.push_back({"a", "is fine"});
    return list;
  }

 private:
  const std::shared_ptr<CheckpointStore> right_;
  const std::string mistake_;
  std::vector<Value> parts_;
};

TEST(CheckpointStoreSuite, finds_every_mistake) {
  const char* const values = "any_box_of_any_cut_comes_back";
  const char* const holds = "tells_what_it_holds";
  const char* const commit = "a_tag_appears_when_it_is_committed";
  const char* const discard = "discard_leaves_what_was_there_before";
  const std::vector<PlantedMistake> mistakes = {
      {"takes_a_box_from_the_first_row", values, "a box of"},
      {"ignores_strides", values, "a box of"},
      {"forgets_the_facts", holds, "facts"},
      {"tells_the_wrong_dtype", holds, "scale"},
      {"does_not_sort_its_tensors", holds, "sorted by name"},
      {"tells_no_time", holds, "since 1970"},
      {"commits_when_it_writes", commit, "before commit"},
      {"keeps_the_slices", commit, "frees the data"},
      {"discards_nothing", discard, "discard leaves files"},
      {"discards_the_tag", discard, "there is no"},
      {"removes_nothing", "replaced_and_removed_tags_stay_readable_where_they_are_open", "a removed tag is listed"},
      {"lists_the_oldest_first", "lists_the_newest_tag_first", "newest first"},
      {"leaves_killed_saves", "the_owner_removes_what_a_killed_save_has_left", "the owner removes"},
      {"names_no_damage", "names_what_it_does_not_list", "why the tag is not listed"},
      {"names_no_left_overs", "names_what_it_does_not_list", "a killed save has left"},
      {"always_has_a_problem", "names_what_it_does_not_list", "of a whole place"},
      {"reads_nothing_where_nothing_is", "refuses_what_is_not_there", "a tensor that is not there"},
      {"says_io_for_a_missing_tag", "refuses_what_is_not_there", "a tag that is not there"},
      {"verifies_nothing", "finds_damage_in_every_file", "is not found"},
  };
  Host host;
  const std::string name = installed_plugins().names(CheckpointStore::kKind).at(0);
  const auto run = [&](const char* found_by, const std::string& mistake) {
    return failures_of([&] {
      run_checkpoint_store_case(found_by, [&] {
        return std::make_shared<MistakenStore>(installed_plugins().make<CheckpointStore>(name, "{}", host.services),
                                               mistake);
      });
    });
  };
  std::set<std::string> right;
  for (const PlantedMistake& planted : mistakes) {
    if (right.insert(planted.found_by).second) {
      EXPECT_EQ(run(planted.found_by, ""), "") << planted.found_by << " of a right store";
    }
    expect_found(planted, run(planted.found_by, planted.name));
  }
}

}  // namespace
}  // namespace drivetrain::test
