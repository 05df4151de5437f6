#include <drivetrain/testkit/kit/decorators.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

// Weights so large that every layer changes the loss by much; sizes that products in 8 bits and two ranks can share.
enum class Term { none, adapter, matrix };

Value decorated_config(const Value& common, const Value& sections, Term term, const std::string& folder) {
  Value config = parse_json(R"({"train_steps": 4, "seed": 5, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
    "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 37,
              "max_position_embeddings": 8, "init_method_std": 0.3}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
    "communicator": {"type": "local", "params": {"share": false}},
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}}})",
                            "suite");
  for (const Value* more : {&common, &sections})
    for (const Value::Member& m : more->members()) config.set(m.key, m.value);
  if (term != Term::none) {
    Value list = Value::array();
    if (const Value* tested = sections.find("strategy")) list.items().push_back(*tested);
    list.items().push_back(
        Value::Object{{"type", "terms"}, {"params", Value::Object{{"adapters", term == Term::adapter}}}});  // innermost
    config.set("strategy", list);
  }
  config.set("output_dir", folder);
  return config;
}

double figure_of(const TrainedRun& run, size_t step, const char* name) {
  const Value* figure = run.metrics.at(step).find(name);
  return figure && figure->is_number() ? figure->as_double() : std::nan("");
}

}  // namespace

void expect_decorators_compose(const DecoratedRuns& runs, const TrainFunction& train) {
  const std::string library = testkit_library("strategy_terms");
  if (!std::filesystem::exists(library))
    return left_out("layers that a further plugin decorates", concat(library, " is not there"));
  installed_plugins().open(library);
  SCOPED_TRACE(runs.sections.to_json());
  const TempFolder folder;
  const auto run = [&](const char* name, const Value& sections, Term term, int ranks) {
    return train(decorated_config(runs.common, sections, term, folder.path(name)), ranks);
  };
  // An average of weights, say, is not the merged weights of averaged adapters. What it then runs beside computes the
  // same.
  const auto run_tested = [&] {
    try {
      return run("found", runs.sections, Term::adapter, runs.ranks);
    } catch (const Error& e) {
      if (!runs.may_be_another_function || e.code() != ErrorCode::config) throw;
      const TrainedRun found = run("no_adapters", runs.sections, Term::matrix, runs.ranks);
      left_out("adapters beside it", concat("it refuses them: ", reason_of(e)));
      return found;
    }
  };
  const Value none = Value::object();
  const TrainedRun plain = run("plain", none, Term::none, 1), wanted = run("wanted", none, Term::adapter, 1),
                   found = run_tested();
  ASSERT_EQ(wanted.metrics.size(), 4u);
  ASSERT_EQ(found.metrics.size(), 4u);
  if (runs.may_be_another_function) {
    const TrainedRun alone = run("alone", runs.sections, Term::none, runs.ranks);
    ASSERT_EQ(alone.metrics.size(), 4u);
    const auto apart = [](const TrainedRun& a, const TrainedRun& b) {
      const double last = figure_of(b, 3, "loss");
      return std::abs(figure_of(a, 3, "loss") - last) > 1e-3 * last;
    };
    if (apart(alone, plain)) {
      EXPECT_TRUE(apart(found, alone)) << "a decorator of layers inside changes nothing";
      return;
    }
  }
  for (const char* name : {"loss", "grad_norm"}) {
    double change = 0, largest = 0;  // in four steps: in one of them the two curves may cross
    for (size_t step = 0; step < 4; ++step) {
      const double by_one = figure_of(wanted, step, name);
      change = std::max(change, std::abs(by_one - figure_of(plain, step, name)));
      largest = std::max(largest, by_one);
    }
    EXPECT_GT(change, 0.05 * largest) << name << ": the term of the further plugin has no weight here";
    for (size_t step = 0; step < 4; ++step)
      EXPECT_NEAR(figure_of(found, step, name), figure_of(wanted, step, name), runs.share * change)
          << name << " of step " << step + 1 << " with a decorator of layers inside, which changes it by up to "
          << change;
  }
}

SuiteCase decorators_compose(int ranks, bool sized) {
  return {"decorators_compose", [=](const Subject& subject) {
            const int64_t multiple = subject.rank_multiple;
            const int64_t n = ranks % multiple == 0 ? ranks : multiple;
            Value options = subject.options;
            if (sized) options.set("size", n);
            const Value section = Value::Object{{"type", subject.name}, {"params", options}};
            expect_decorators_compose(
                {.sections = Value::Object{{subject.kind, section}}, .ranks = static_cast<int>(n)}, subject.train);
          }};
}

}  // namespace drivetrain::test
