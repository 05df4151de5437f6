// Which parameters share a flat buffer.
#include <gtest/gtest.h>

#include <drivetrain/toolkit/sharding/state_sharing.h>

#include "support/mesh_ranks.h"

namespace drivetrain {
namespace {

class Shared : public StateSharing {
 public:
  Shared(const Services& services, int64_t bucket) : StateSharing(services) { options_.bucket = bucket; }
  void plan(PlanContext&) override {}
};

class Holder : public Unit {
 public:
  explicit Holder(std::vector<ParamPtr> params) : Unit("holder"), params_(std::move(params)) {}
  std::vector<ParamPtr> params() const override { return params_; }
  Tensors forward(const Tensors& x, StepContext&, Saved&) override { return x; }
  Tensors backward(const Tensors& dy, StepContext&, Saved&) override { return dy; }

 private:
  std::vector<ParamPtr> params_;
};

// Names of the parameters, bucket by bucket.
std::vector<std::string> buckets(const std::vector<std::string>& tied, int64_t bucket) {
  test::QuietLog log;
  const auto store = make_local_store();
  const Mesh mesh({}, 0, 1, nullptr);
  Services services{.log = log, .store = *store};
  services.mesh = &mesh;
  std::vector<ParamPtr> params;
  for (const char* name : {"a", "b", "c", "d"}) {
    params.push_back(std::make_shared<Param>(name, Layout::whole({10}), InitRule::ones()));
    params.back()->tied_over_stages = std::find(tied.begin(), tied.end(), name) != tied.end();
  }
  UnitList units{{std::make_shared<Holder>(params)}};
  Shared owner(services, bucket);
  owner.attach(units);
  std::vector<std::string> names;
  for (const Trainables& list : owner.trainables()) {
    names.emplace_back();
    for (const Trainable& t : list) names.back() += t.param->name;
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Buckets, parameters_of_a_unit_share_one_up_to_its_limit) {
  EXPECT_EQ(buckets({}, 1000), (Names{"abcd"}));
  EXPECT_EQ(buckets({}, 20), (Names{"ab", "cd"}));
}

TEST(Buckets, what_other_stages_hold_too_stands_alone) {
  EXPECT_EQ(buckets({"a"}, 1000), (Names{"a", "bcd"}));
  EXPECT_EQ(buckets({"b"}, 1000), (Names{"acd", "b"}));
  EXPECT_EQ(buckets({"c", "d"}, 1000), (Names{"ab", "c", "d"}));
}

}  // namespace
}  // namespace drivetrain
