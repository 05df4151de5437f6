// What `drivetrain new-plugin` makes, of every kind: it passes the suite of its kind and trains, as it is. The plugins
// were compiled with this tree (CMakeLists.txt); the runtime finds them as it finds any that are not installed.
#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/poisoned_memory.h>
#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "config_files/load.h"
#include "generate/decoder.h"
#include "log/log_console.h"
#include "plugin/kinds.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

const PoisonedMemory poisoned;

const Registry& registry() {
  static const Registry registry(  // with what suites of the testkit run beside a plugin
      SearchPath::standard({}, {DRIVETRAIN_TEMPLATES_PLUGINS, DRIVETRAIN_BUILD_DIR "/lib/drivetrain/testkit"}, ""));
  return registry;
}

TrainedRun train(const Value& config, int ranks) { return run_threads(config, ranks, registry()); }

// What the CMakeLists.txt of a kind asks for: "suite" by drivetrain_add_conformance_test, "run" by
// drivetrain_add_training_test, each with what follows the kind.
std::map<std::string, std::string> tests_of(const std::string& kind) {
  std::map<std::string, std::string> tests;
  std::ifstream file(DRIVETRAIN_TEMPLATES_MADE "/tests.txt");
  std::string call, of, rest;
  while (file >> call >> of && std::getline(file, rest))
    if (of == kind) tests[call] = rest;
  return tests;
}

class Template : public testing::TestWithParam<std::string> {
 protected:
  const std::string kind_ = GetParam(), name_ = "my_" + kind_;
};

TEST_P(Template, passes_the_suite_of_its_kind) {
  EXPECT_EQ(tests_of(kind_)["suite"], " " + name_) << "its project does not test it";
  const std::string library = concat(DRIVETRAIN_TEMPLATES_PLUGINS "/", kind_, "_", name_, ".so");
  EXPECT_EQ(inspect_file(library, "test", SearchPath::standard({}, {}, ""))->problem, "");
  const std::vector<Plugins::Name> offered = installed_plugins().open(library);
  ASSERT_EQ(offered.size(), 1u);
  EXPECT_EQ(offered[0].text(), kind_ + "/" + name_);
  run_suite({.kind = kind_, .name = name_, .train = train});
}

TEST_P(Template, trains_by_its_config) {
  const std::string run = tests_of(kind_)["run"];
  if (kind_ == "checkpoint_format") {  // no config chooses one
    EXPECT_EQ(run, "");
    return;
  }
  std::istringstream words(run);
  std::string name, file;
  int ranks = 0;
  ASSERT_TRUE(words >> name >> file >> ranks) << "its project does not train with it";
  EXPECT_EQ(name, name_);
  const TempFolder folder;
  Problems problems;
  const Value config = load_config(concat(DRIVETRAIN_TEMPLATES_MADE "/", name_, "/", file),
                                   {"output_dir=" + folder.path("run")}, problems);
  problems.throw_if_any();
  const TrainedRun trained = train(config, ranks);
  ASSERT_EQ(trained.metrics.size(), 10u);
  for (const Value& step : trained.metrics) EXPECT_TRUE(std::isfinite(step.find("loss")->as_double()));
  std::ifstream resolved(folder.path("run/resolved.json"));
  const std::string text{std::istreambuf_iterator<char>(resolved), {}};
  EXPECT_NE(text.find(kind_ + "/" + name_), std::string::npos) << "the plugin was not used\n" << text;
}

// What `generate` and `evaluate` open: the plugin that resolved.json names reads the weights by its own rules, and so
// does one of which a Hugging Face folder has the name.
TEST(ModelTemplate, a_run_of_it_can_be_asked) {
  const TempFolder folder;
  const auto trained = [&](const std::string& name, const std::string& steps) {
    Problems problems;
    const Value config =
        load_config(DRIVETRAIN_TEMPLATES_MADE "/my_model/run.json",
                    {"output_dir=" + folder.path(name), "save_final=true", "train_steps=" + steps}, problems);
    problems.throw_if_any();
    train(config, 1);
    return folder.path(name);
  };
  const auto log = make_console_log({.level = LogLevel::error});
  const at::Tensor tokens = at::tensor({3, 1, 4, 1, 5}, at::kLong).unsqueeze(0);
  const auto logits = [&](const std::string& run) { return Inference(run, 1, registry(), log).logits(tokens); };
  const std::string run = trained("run", "10"), other = trained("other", "3");
  EXPECT_TRUE(logits(run).equal(logits(run + "/final")));
  EXPECT_FALSE(logits(run).equal(logits(other))) << "weights are those of the folder, not initial ones";

  Inference model(run, 1, registry(), log);
  LinesLog lines;
  Decoder decoder(model, lines);
  std::vector<int64_t> text = {3, 1, 4};
  decoder.begin({text}, 4);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor whole = model.logits(at::tensor(text, at::kLong).unsqueeze(0))[0][-1];
    const at::Tensor found = decoder.logits()[0];
    EXPECT_TRUE(found.equal(whole));
    text.push_back(found.argmax().item<int64_t>());
    decoder.add({text.back()});
  }
  ASSERT_EQ(lines.warnings.size(), 1u);
  EXPECT_NE(lines.warnings[0].find("without a key/value cache"), std::string::npos) << lines.warnings[0];
}

std::vector<std::string> all_kinds() {
  std::vector<std::string> kinds;
  for (const KindRule& rule : kind_rules()) kinds.push_back(rule.kind);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Of, Template, testing::ValuesIn(all_kinds()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace drivetrain::test
