// Experts are held by the ranks along "dp" only, the layers around them by all ranks: gradients of the two are summed
// over different groups. Losses, norms and weights are those of one process, exactly, however a data_parallel plugin
// shares the state out.
#include "experts/expert_rank.h"
#include "rendezvous/rendezvous.h"
#include "support/plugin_under_test.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

struct ExpertTrial {
  const char* name;
  const char* options;
  int64_t ep, rest;  // ranks
};

// As a run does: the plugin claims what "ep" leaves.
std::vector<Axis> axes_for(DataParallel& plugin, const ExpertTrial& trial) {
  ModelFacts facts;
  facts.parameters = 7000, facts.num_layers = 1;
  RunFacts run;
  run.world_size = trial.ep * trial.rest, run.rest_ranks = trial.rest, run.joined_ranks = trial.ep;
  run.train_batch_size = ExpertModel::kTokens, run.accumulation = 1, run.train_steps = ExpertModel::kSteps;
  run.micro_batch_size = ExpertModel::kTokens / run.world_size;
  PlanRecord context(facts, run);
  plugin.plan(context);
  for (const auto& refusal : context.refusals()) ADD_FAILURE() << refusal.text;
  std::vector<Axis> axes = {{"ep", trial.ep, 0, true}};
  int64_t left = trial.rest;
  for (const auto& claim : context.claims()) {
    const int64_t size = claim.size == PlanContext::kRest ? left : claim.size;
    axes.push_back({claim.axis, size, 0, claim.joins_gradients()});
    left /= size;
  }
  return axes;
}

void run_rank(const ExpertTrial& trial, int64_t rank, const std::shared_ptr<Store>& store) {
  LinesLog log;
  const int64_t world = trial.ep * trial.rest;
  Services services{
      .log = log, .store = *store, .rank = rank, .world_size = world, .local_rank = rank, .local_size = world};
  const auto make = [&]<class Kind>(const char* name, const char* json, Kind*) {
    Problems problems;
    const auto options =
        built_plugins().options(Kind::kKind, name).parse(parse_json(json, "test"), name, "params", problems);
    problems.throw_if_any();
    return built_plugins().create<Kind>(name, options.get(), services);
  };
  const std::shared_ptr<Communicator> communicator = make("local", "{}", static_cast<Communicator*>(nullptr));
  try {
    const std::shared_ptr<DataParallel> plugin = make(trial.name, trial.options, static_cast<DataParallel*>(nullptr));
    const Mesh mesh(axes_for(*plugin, trial), rank, world, communicator);
    services.mesh = &mesh;
    mesh.world();
    ExpertRank(mesh, *plugin).run();
    mesh.world()->barrier();  // nobody leaves while others gather
  } catch (const std::exception& e) {
    communicator->abort(e.what());
    ADD_FAILURE() << "rank " << rank << ": " << e.what();
  }
}

constexpr ExpertTrial kTrials[] = {
    {"ddp", "{}", 2, 2},
    {"ddp", "{}", 2, 1},
    {"ddp", "{}", 4, 1},
    {"zero", R"({"stage": 1})", 2, 2},
    {"zero", R"({"stage": 1, "reduce_bucket_size": 100, "allgather_bucket_size": 100})", 2, 2},
    {"zero", R"({"stage": 2})", 2, 2},
    {"zero", R"({"stage": 3})", 2, 2},
    {"zero", R"({"stage": 3})", 2, 1},
    {"zero", R"({"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0,
                 "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0})",
     2, 2},
    {"zero", R"({"stage": 3, "mics_shard_size": 2, "stage3_param_persistence_threshold": 0})", 2, 4},
    {"zero", R"({"stage": 3, "zero_hpz_partition_size": 2, "stage3_param_persistence_threshold": 0})", 2, 4},
    {"fsdp", "{}", 2, 2},
};

class TwoGroups : public testing::TestWithParam<ExpertTrial> {};

TEST_P(TwoGroups, compute_what_one_process_does) {
  const ExpertTrial& trial = GetParam();
  SCOPED_TRACE(concat(trial.name, " ", trial.options, ", ep ", trial.ep, " x ", trial.rest));
  const auto store = make_local_store();
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < trial.ep * trial.rest; ++rank)
    ranks.emplace_back([&, rank] { run_rank(trial, rank, store); });
  for (std::thread& rank : ranks) rank.join();
}

INSTANTIATE_TEST_SUITE_P(Experts, TwoGroups, testing::ValuesIn(kTrials),
                         [](const auto& info) { return concat(info.param.name, "_", info.index); });

// ---- who says over which axes a gradient is summed ----

using Names = std::vector<std::string>;

Mesh mesh_of_experts() {
  return Mesh({{"tp", 2, 0, false}, {"ep", 2, 0, true}, {"dp", 3, 0, true}, {"cp", 1, 0, true}}, 0, 12, nullptr);
}
Param param_cut_by(const Names& axes) {
  Layout layout = Layout::whole({4, 8});
  layout.dims = {{axes, {}, 0}, {}};
  return Param("weight", layout, InitRule::zeros());
}

TEST(ReductionAxes, are_those_that_join_gradients_and_hold_copies) {
  const Mesh mesh = mesh_of_experts();
  EXPECT_EQ(reduction_axes(Param("w", Layout::whole({4}), InitRule::zeros()), mesh), (Names{"ep", "dp"}));
  EXPECT_EQ(reduction_axes(param_cut_by({"tp"}), mesh), (Names{"ep", "dp"}));
  EXPECT_EQ(reduction_axes(param_cut_by({"ep"}), mesh), (Names{"dp"}));
  EXPECT_EQ(reduction_axes(param_cut_by({"tp", "ep"}), mesh), (Names{"dp"}));
}

TEST(ReductionAxes, may_be_named_by_the_layer) {
  const Mesh mesh = mesh_of_experts();
  Param param = param_cut_by({});
  param.reduction_axes = Names{"dp", "cp", "absent"};
  EXPECT_EQ(reduction_axes(param, mesh), (Names{"dp"}));
  param.reduction_axes = Names{};
  EXPECT_EQ(reduction_axes(param, mesh), Names{});
}

TEST(ReductionAxes, that_cannot_be_summed_over_are_refused) {
  const Mesh mesh = mesh_of_experts();
  const auto refusal = [&](Param param, const Names& axes) {
    param.reduction_axes = axes;
    try {
      reduction_axes(param, mesh);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plugin);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(param_cut_by({"ep"}), {"ep", "dp"}).find("weight: its reduction axis \"ep\" cuts its layout"),
            std::string::npos);
  EXPECT_NE(refusal(param_cut_by({}), {"tp"}).find("Layout::partial_over"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::test
