#include <drivetrain/testkit/model/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/ops/ops.h>

#include <drivetrain/testkit/kit/stop.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include <drivetrain/testkit/strategy/chain.h>

namespace drivetrain::test {
namespace {
namespace of_model {  // other suites have cases of the same names

constexpr int64_t kRows = 3, kPositions = 6;

int64_t positions_of(const Chain& chain) {
  const int64_t most = chain.facts.max_position_embeddings;
  return most > 0 ? std::min(most, kPositions) : kPositions;
}

bool drops(const Chain& chain) { return chain.facts.hidden_dropout > 0 || chain.facts.attention_dropout > 0; }

void begin(Chain& chain, at::ScalarType dtype = at::kDouble, const std::set<std::string>& frozen = {}) {
  chain.fill(dtype, frozen);
  chain.set_batch(kRows, positions_of(chain));
}

std::string text_of(const Param& param) {
  return concat(param.name, " ", at::IntArrayRef(param.layout.global_shape), " init ",
                static_cast<int>(param.init.kind), " ", param.init.std, " ", role_name(param.role), " of blocks ",
                at::IntArrayRef(param.blocks));
}

std::vector<std::string> description_of(const Chain& chain) {
  std::vector<std::string> lines;
  for (const UnitPtr& unit : chain.units.units) {
    lines.push_back(concat("unit ", unit->name(), unit->is_block() ? ", a block" : ""));
    for (const ParamPtr& param : unit->params()) lines.push_back(text_of(*param));
  }
  const ModelFacts& f = chain.facts;
  lines.push_back(concat("facts ", f.num_layers, " ", f.hidden_size, " ", f.vocab_size, " ", f.max_position_embeddings,
                         " ", f.parameters));
  return lines;
}

void check_units(const Subject& subject) {
  const Chain chain(subject), again(subject);
  ASSERT_FALSE(chain.units.units.empty()) << "a model has at least one unit";
  std::set<std::string> names;
  for (const UnitPtr& unit : chain.units.units) {
    ASSERT_TRUE(unit) << "a unit is null";
    EXPECT_FALSE(unit->name().empty()) << "a unit without a name";
    EXPECT_TRUE(names.insert(unit->name()).second) << "two units are called " << unit->name();
    EXPECT_GE(chain.model->cost(*unit), 0) << "cost of " << unit->name();
    EXPECT_TRUE(std::isfinite(chain.model->cost(*unit))) << "cost of " << unit->name();
  }
  EXPECT_EQ(description_of(again), description_of(chain)) << "a second object builds something else";
  EXPECT_EQ(chain.model->facts().parameters, chain.facts.parameters) << "facts, asked again";
  EXPECT_GT(chain.facts.vocab_size, 0);
}

void check_parameters_have_names(const Subject& subject) {
  const Chain chain(subject);
  std::map<std::string, const Param*> known;
  int64_t elements = 0;
  for (const UnitPtr& unit : chain.units.units) {
    EXPECT_EQ(unit->params(), unit->params()) << unit->name() << ": params(), asked again";
    for (const ParamPtr& param : unit->params()) {
      ASSERT_TRUE(param) << unit->name() << " has a null parameter";
      const auto [found, first] = known.emplace(param->name, param.get());
      EXPECT_TRUE(first || found->second == param.get()) << "two parameters are called " << param->name;
      EXPECT_FALSE(param->name.empty()) << "a parameter of " << unit->name() << " without a name";
      EXPECT_FALSE(param->tensor.defined() && !param->tensor.is_meta())
          << param->name << " has memory before Strategy::attach";
      if (first) elements += param->layout.global_numel();
    }
  }
  EXPECT_EQ(chain.facts.parameters, elements) << "ModelFacts::parameters, which counts a tied one once";
}

double loss_of(Chain& chain) {
  const at::AutoGradMode off(false);
  return chain.forward().outputs.back().item<double>();
}

void check_loss_is_a_sum(const Subject& subject) {
  Chain chain(subject);
  begin(chain);
  chain.context.mode_ = Mode::evaluate;
  const Batch all = chain.context.batch_;
  const PassResult whole = [&] {
    const at::AutoGradMode off(false);
    return chain.forward();
  }();
  EXPECT_EQ(whole.outputs.back().dim(), 0) << "the loss is a scalar";
  EXPECT_EQ(whole.outputs.back().scalar_type(), at::kDouble) << "the loss is float64";
  double sum = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    chain.context.batch_.tokens_BS = all.tokens_BS.narrow(0, row, 1).contiguous();
    chain.context.batch_.labels_BS = all.labels_BS.narrow(0, row, 1).contiguous();
    chain.context.batch_.first_sample = all.first_sample + row;
    sum += loss_of(chain);
  }
  const double loss = whole.outputs.back().item<double>();
  EXPECT_NEAR(sum, loss, 1e-9 * std::abs(loss)) << "losses of single rows, added up";
  chain.context.batch_ = all;
  chain.context.batch_.labels_BS = all.labels_BS.clone();
  chain.context.batch_.labels_BS.fill_(-100);
  EXPECT_EQ(loss_of(chain), 0) << "the loss of labels that do not count";
}

// Along a direction of each parameter in turn, in float64.
void check_gradient(const Subject& subject) {
  Chain chain(subject);
  begin(chain);
  chain.forward_and_backward();  // with the gradient 0.5 of the loss
  const auto gradients = slots(chain);
  const double h = 1e-5;
  for (const ParamPtr& param : chain.units.all()) {
    at::Tensor direction = param->tensor.detach().clone().to(at::kFloat).view({-1});
    fill_normal(direction, 17, param->name, 0, 1);
    const at::Tensor u = direction.view(param->tensor.sizes()).to(at::kDouble), here = param->tensor.detach().clone();
    const auto moved = [&](double by) {
      const at::AutoGradMode off(false);
      param->tensor.copy_(here + u * by);
      const double loss = chain.forward().outputs.back().item<double>();
      param->tensor.copy_(here);
      return loss;
    };
    const double difference = (moved(h) - moved(-h)) / (2 * h);
    const double slope = 2 * gradients.at(param->name).mul(u).sum().item<double>();
    EXPECT_NEAR(slope, difference, 1e-6 * std::max(1.0, std::abs(difference)))
        << "gradient of " << param->name << " along a direction, against the difference of losses";
  }
}

void check_micro_batches_add_up(const Subject& subject) {
  Chain both(subject);
  begin(both);
  std::map<std::string, at::Tensor> sum;
  for (const int64_t micro : {0, 1}) {
    Chain one(subject);
    begin(one), one.set_batch(kRows, positions_of(one), micro), both.set_batch(kRows, positions_of(both), micro);
    one.forward_and_backward(), both.forward_and_backward();
    for (const auto& [name, slot] : slots(one)) sum[name] = sum.count(name) ? at::add(sum[name], slot) : slot;
  }
  for (const auto& [name, slot] : slots(both)) expect_near(slot, sum.at(name), 1e-12, name + " of two micro-batches");
}

void check_same_bits(const Subject& subject) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    Chain chain(subject), other(subject);
    begin(chain, dtype), begin(other, dtype);
    const PassResult first = chain.forward_and_backward(), second = other.forward_and_backward();
    const auto slots_first = slots(chain);
    expect_same_bits(second.outputs, first.outputs, "output of another object");
    expect_same_bits(slots(other), slots_first);
    begin(chain, dtype);
    expect_same_bits(chain.forward_and_backward().outputs, first.outputs, "output, computed again");
    expect_same_bits(slots(chain), slots_first);
  }
}

void check_frozen_units(const Subject& subject) {
  Chain whole(subject);
  begin(whole), whole.forward_and_backward();
  const auto wanted = slots(whole);
  std::set<std::string> some;  // half of them
  for (const auto& [name, slot] : wanted)
    if (some.size() * 2 < wanted.size()) some.insert(name);
  Chain chain(subject);
  begin(chain, at::kDouble, some);
  chain.forward_and_backward();
  for (const auto& [name, slot] : slots(chain)) expect_near(slot, wanted.at(name), 1e-12, name + " beside frozen ones");
}

void check_split_backward(const Subject& subject) {
  Chain whole(subject), split(subject);
  begin(whole), begin(split);
  whole.forward_and_backward();
  split.forward_and_backward(Part::input);
  split.backward_weight();
  const auto wanted = slots(whole);
  for (const auto& [name, slot] : slots(split)) expect_near(slot, wanted.at(name), 1e-12, name + " of two halves");
}

void check_forward_only(const Subject& subject) {
  Chain chain(subject);
  const at::AutoGradMode off(false);
  for (const int64_t S : {int64_t{1}, int64_t{2}, positions_of(chain)}) {
    begin(chain), chain.set_batch(kRows, S);
    const at::Tensor labels = chain.context.batch_.labels_BS;
    const double trained = chain.forward().outputs.back().item<double>();
    chain.context.mode_ = Mode::evaluate;
    const double evaluated = chain.forward().outputs.back().item<double>();
    if (!drops(chain)) {
      EXPECT_NEAR(evaluated, trained, 1e-9 * std::abs(trained)) << "the loss in evaluation";
    }
    chain.context.mode_ = Mode::generate;
    chain.context.batch_.labels_BS.reset();
    at::Tensor logits = chain.forward().outputs.back();
    ASSERT_EQ(logits.sizes(), at::IntArrayRef({kRows, S, chain.facts.vocab_size})) << "logits, without labels";
    logits = logits.reshape({-1, chain.facts.vocab_size}).contiguous();
    EXPECT_NEAR(ops::cross_entropy_(logits, labels.view({-1}), false).item<double>(), evaluated, 1e-9 * evaluated)
        << "the loss that follows from the logits";
    chain.context.mode_ = Mode::train;
  }
}

// Two stages, cut before each unit in turn: what goes between them is what `forward` returned, or its sum.
void check_cuts(const Subject& subject) {
  Chain first(subject);
  begin(first);
  const at::AutoGradMode off(false);
  const double whole = loss_of(first);
  for (size_t cut = 1; cut < first.units.units.size(); ++cut) {
    Chain second(subject);  // which has seen nothing of the units before
    begin(second);
    Tensors x = {first.context.batch_.tokens_BS};
    for (size_t i = 0; i < cut; ++i) {
      Saved saved;
      x = first.units.units[i]->forward(x, first.context, saved);
    }
    EXPECT_LE(x.size(), 8u) << "tensors between two stages";
    for (const at::Tensor& t : x) EXPECT_LE(t.dim(), 6) << "dimensions of a tensor between two stages";
    if (first.units.units[cut - 1]->returns_summands()) x = {at::add(x[0], x[1])};
    for (size_t i = cut; i < second.units.units.size(); ++i) {
      Saved saved;
      x = second.units.units[i]->forward(x, second.context, saved);
    }
    EXPECT_NEAR(x[0].item<double>(), whole, 1e-9 * std::abs(whole)) << "cut before unit " << cut;
  }
}

void check_16_bits(const Subject& subject) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    Chain chain(subject);
    begin(chain, dtype);
    const PassResult result = chain.forward_and_backward();
    for (size_t i = 0; i + 1 < result.outputs.size(); ++i)
      EXPECT_EQ(result.outputs[i].scalar_type(), dtype) << "activations after unit " << i;
    EXPECT_TRUE(std::isfinite(result.outputs.back().item<double>())) << "the loss with parameters of " << dtype;
    for (const auto& [name, slot] : slots(chain))
      EXPECT_TRUE(std::isfinite(slot.to(at::kFloat).sum().item<double>())) << name << " of " << dtype;
  }
}

// Every parameter in one rule; its rows are those of its parts, and no two share a row of a foreign tensor. Of rows
// that a tensor may lack all parts of it say the same.
void check_weight_rules(const Subject& subject) {
  const Chain chain(subject);
  const WeightRules rules = chain.model->weight_rules("hf");
  std::map<std::string, int64_t> rows;
  std::set<std::string> taken;
  std::map<std::string, AbsentRows> absent;
  for (const WeightRule& rule : rules.rules) {
    EXPECT_FALSE(rows.count(rule.param)) << rule.param << " has two rules";
    for (const WeightPart& part : rule.parts) {
      rows[rule.param] += part.rows;
      EXPECT_TRUE(taken.insert(concat(part.name, "@", part.first)).second) << part.name << " is in two places";
      EXPECT_EQ(absent.emplace(part.name, part.absent).first->second, part.absent)
          << "rows that " << part.name << " lacks start from two things";
    }
  }
  for (const ParamPtr& param : chain.units.all()) {
    ASSERT_TRUE(rows.count(param->name)) << param->name << " has no rule in the format \"hf\"";
    EXPECT_EQ(rows[param->name], param->layout.global_shape.at(0)) << "rows of " << param->name;
    rows.erase(param->name);
  }
  for (const auto& [name, count] : rows) ADD_FAILURE() << "a rule for " << name << ", which is no parameter";
  EXPECT_NE(error_of([&] { chain.model->weight_rules("no such format"); }), "") << "an unknown format is refused";
}

// Shared out over ranks: by rows, and by stages.
void check_ranks(const Subject& subject) {
  const TempFolder folder;
  std::vector<TrainedRun> runs;
  for (const auto& [name, ranks, more] : {std::tuple{"one", 1, R"({"gradient_accumulation_steps": 2})"},
                                          {"rows", 2, R"({"gradient_accumulation_steps": 1})"},
                                          {"stages", 2,
                                           R"({"gradient_accumulation_steps": 2,
                                               "pipeline": {"type": "gpipe", "params": {"stages": 2}}})"}}) {
    Value config = parse_json(R"({"train_steps": 3, "seed": 5, "train_micro_batch_size_per_gpu": 2, "monitors": "jsonl",
        "dataset": {"type": "synthetic", "params": {"seq_length": 4}}, "checkpoint_policy": false,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})",
                              "suite");
    config.set("model", Value::Object{{"type", subject.name}, {"params", subject.options}});
    const Value further = parse_json(more, "suite");
    for (const Value::Member& m : further.members()) config.set(m.key, m.value);
    config.set("output_dir", folder.path(name));
    runs.push_back(subject.train(config, ranks));
  }
  for (size_t run = 1; run < runs.size(); ++run) {
    ASSERT_EQ(runs[run].metrics.size(), 3u);
    for (size_t i = 0; i < 3; ++i)
      for (const char* figure : {"loss", "grad_norm"}) {
        const double wanted = runs[0].metrics[i].find(figure)->as_double();
        EXPECT_NEAR(runs[run].metrics[i].find(figure)->as_double(), wanted, 1e-4 * std::abs(wanted))
            << figure << " of step " << i + 1 << (run == 1 ? " on two ranks with other rows" : " on two stages");
      }
  }
}

}  // namespace of_model
}  // namespace

Suite model_suite() {
  using namespace of_model;
  Suite suite = {
      {"builds_the_same_units_every_time", check_units},
      {"parameters_have_names_of_their_own", check_parameters_have_names},
      {"loss_is_a_sum_over_labels_that_count", check_loss_is_a_sum},
      {"gradient_is_the_slope", check_gradient},
      {"gradients_of_micro_batches_add_up", check_micro_batches_add_up},
      {"gives_the_same_bits_twice", check_same_bits},
      {"frozen_parameters_get_no_gradient", check_frozen_units},
      {"split_backward_gives_the_whole", check_split_backward},
      {"evaluates_and_generates", check_forward_only},
      {"stages_compose_to_the_whole", check_cuts},
      {"works_in_16_bits", check_16_bits},
      {"every_weight_has_a_name_in_files", check_weight_rules},
      {"ranks_together_train_what_one_does", check_ranks},
  };
  suite.push_back(state_survives_a_stop());
  return suite;
}

}  // namespace drivetrain::test
