// The conformance suite of data_parallel finds what it is there for: a small strategy passes it, and does not with any
// one mistake.
#include "support/mistakes.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/sharding/flat_unit.h>

#include <drivetrain/testkit/data_parallel/suite.h>

namespace drivetrain::test {
namespace {

// Memory is poisoned: conformance_test.cpp, the other half of this program, does it.

enum class Mistake {
  none,
  no_sum,  // gradients stay each rank's own
  no_sum_of_one_unit,
  unused_not_zeroed,  // slots of parameters that a step does not use keep what was there
  released_in_backward,
  copies_kept_from_the_start,  // values are not those of the last update
  one_not_updated,
  one_updated_twice,
  frozen_updated,
  frozen_has_gradients,  // its memory for gradients is cut as that for values
  frozen_has_masters,
  frozen_has_a_slot,
  chunks_differ,
};

// Whole copies on every rank, released between their spans.
class Whole : public DataParallel {
 public:
  Whole(Mistake mistake, const Services& services) : mistake_(mistake), services_(services) {}

  void plan(PlanContext& ctx) override { ctx.claim_axis("dp", PlanContext::kRest, PlanContext::Reads::other_rows, 2); }
  void attach(UnitList& units) override {
    group_ = services_.mesh->group("dp");
    units_ = units;
    FlatOptions options;
    options.dtypes = services_.dtypes;
    for (size_t u = 0; u < units.units.size(); ++u) {
      std::vector<ParamPtr> params = units.owned(u), frozen;
      if (mistake_ != Mistake::frozen_has_gradients) frozen = taken_out(params);
      flats_.push_back(std::make_unique<FlatUnit>(params, *services_.mesh, options));
      if (!frozen.empty()) frozen_.push_back(std::make_unique<FlatUnit>(frozen, *services_.mesh, options));
    }
    if (mistake_ != Mistake::frozen_has_a_slot) return;
    for (const ParamPtr& param : units.all())
      if (!param->trainable) param->grad = at::zeros(param->layout.global_shape);
  }
  void before_backward(const Visit& visit, StepContext&) override {
    if (mistake_ == Mistake::released_in_backward && visit.unit == 1) flats_[1]->release(), flats_[1]->fill();
    if (mistake_ == Mistake::copies_kept_from_the_start && kept_.defined()) flats_[1]->values().copy_(kept_);
  }
  void flush_grads(StepContext&) override {
    for (size_t u = 0; u < flats_.size(); ++u) {
      if (!flats_[u]->grads().defined()) continue;
      if (mistake_ != Mistake::unused_not_zeroed) flats_[u]->zero_unwritten_grads();
      if (mistake_ == Mistake::no_sum || (mistake_ == Mistake::no_sum_of_one_unit && u == 3)) continue;
      group_->all_reduce(flats_[u]->grads())->wait();
    }
  }
  void after_update(Trainables& chunk, StepContext&) override {
    if (!kept_.defined() && chunk.front().param->name == "block.0.weight") kept_ = flats_[1]->values().clone();
  }
  std::vector<Trainables> trainables() override {
    std::vector<Trainables> chunks;
    for (const auto& flat : flats_)
      if (flat->grads().defined()) chunks.push_back(trainable_of(flat->trainables()));
    if (mistake_ == Mistake::one_not_updated) chunks[1].pop_back();
    if (mistake_ == Mistake::one_updated_twice) chunks[1].push_back(chunks[0].front());
    if (mistake_ == Mistake::frozen_updated) chunks[1].push_back(frozen_one());
    if (mistake_ == Mistake::chunks_differ && services_.rank == 1) split(chunks);
    return chunks;
  }
  std::vector<Trainables> frozen() override {
    std::vector<Trainables> chunks;
    for (const auto& flat : frozen_) chunks.push_back(flat->trainables());
    if (mistake_ == Mistake::frozen_has_masters)
      for (Trainable& t : chunks.front()) t.value = t.value.clone();
    return chunks;
  }

 private:
  // Those that are frozen, where others are not.
  static std::vector<ParamPtr> taken_out(std::vector<ParamPtr>& params) {
    const auto is_trained = [](const ParamPtr& param) { return param->trainable; };
    const auto first = std::stable_partition(params.begin(), params.end(), is_trained);
    if (first == params.begin()) return {};
    std::vector<ParamPtr> frozen(first, params.end());
    params.erase(first, params.end());
    return frozen;
  }
  static Trainables trainable_of(Trainables chunk) {
    std::erase_if(chunk, [](const Trainable& t) { return !t.param->trainable; });
    return chunk;
  }
  static void split(std::vector<Trainables>& chunks) {
    chunks.push_back({chunks[1].back()});
    chunks[1].pop_back();
  }
  Trainable frozen_one() const {
    Trainable t;
    for (const ParamPtr& param : units_.all())
      if (!param->trainable) t.param = param;
    t.value = t.working = t.param->tensor.detach().view(-1);
    t.grad = at::zeros({t.value.numel()}, at::TensorOptions(at::kFloat));
    t.layout = t.param->layout;
    return t;
  }

  const Mistake mistake_;
  const Services& services_;
  GroupPtr group_;
  UnitList units_;
  std::vector<std::unique_ptr<FlatUnit>> flats_, frozen_;  // the former one per unit
  at::Tensor kept_;
};

std::string complaints(Mistake mistake, int64_t ranks = 2) {
  DataParallelTrial trial{.name = "whole", .ranks = ranks, .accumulation = 2};
  trial.make = [mistake](const Services& services) { return std::make_shared<Whole>(mistake, services); };
  return failures_of([&] { check_data_parallel(trial); });
}

TEST(DataParallelSuite, accepts_a_right_strategy) {
  for (const int64_t ranks : {1, 2, 4}) EXPECT_EQ(complaints(Mistake::none, ranks), "");
}

TEST(DataParallelSuite, finds_every_mistake) {
  for (const Mistake mistake :
       {Mistake::no_sum, Mistake::no_sum_of_one_unit, Mistake::unused_not_zeroed, Mistake::released_in_backward,
        Mistake::copies_kept_from_the_start, Mistake::one_not_updated, Mistake::one_updated_twice,
        Mistake::frozen_updated, Mistake::frozen_has_masters, Mistake::frozen_has_a_slot, Mistake::chunks_differ})
    EXPECT_NE(complaints(mistake), "") << static_cast<int>(mistake);
}

std::string frozen_complaints(Mistake mistake) {
  DataParallelTrial trial{.name = "whole", .ranks = 2};
  trial.make = [mistake](const Services& services) { return std::make_shared<Whole>(mistake, services); };
  return failures_of([&] { check_frozen(trial); });
}

TEST(DataParallelSuite, finds_gradients_and_masters_of_frozen_parameters) {
  EXPECT_EQ(frozen_complaints(Mistake::none), "");
  const std::string found = frozen_complaints(Mistake::frozen_has_gradients);
  EXPECT_NE(found.find("bytes of gradients, with larger"), std::string::npos) << found.substr(0, 1000);
  EXPECT_NE(found.find("bytes of masters, with larger"), std::string::npos) << found.substr(0, 1000);
}

}  // namespace
}  // namespace drivetrain::test
