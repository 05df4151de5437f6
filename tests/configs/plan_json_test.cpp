// A plan as JSON against the same plan in words, for every run of configs/: each number and each name that the text
// shows is in the JSON, and the plan is a value that outlives the plugins it was made with.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <sstream>

#include "config_files/load.h"
#include "config_files/places.h"
#include "configs/config_files.h"
#include "plan/prepare_run.h"
#include "report/plan_text.h"
#include "report/schedule_picture.h"

namespace drivetrain::test {
namespace {

static_assert(std::is_copy_constructible_v<RunPlan> && std::is_copy_assignable_v<RunPlan>);

// Nothing where the device of the config has no plugins in this build.
std::optional<RunPlan> plan_of(const std::string& name) {
  Problems problems;
  Value config = load_config(path_of(name), {}, problems);
  expand_places(config);
  const RunSettings settings = read_run_settings(config, path_of(name), problems);
  if (!has_plugins_for(settings.device)) return std::nullopt;
  auto chosen = choose_plugins(config, built_plugins(), settings.device, problems);
  problems.throw_if_any();
  RankSetup setup{{}, make_local_store(), make_console_log({.level = LogLevel::error})};
  setup.environment.world_size = ranks_of(name);
  setup.environment.local_size = std::min<int64_t>(ranks_of(name), 8);
  const auto run = prepare_run(settings, std::move(chosen), built_plugins(), setup, Purpose::train);
  if (run->plan.schedule.stages > 1) add_timeline(run->plan, *run->plugins.schedule);
  return run->plan;
}

void collect(const Value& value, std::vector<double>& numbers, std::vector<std::string>& texts) {
  if (value.is_number()) numbers.push_back(value.as_double());
  if (value.is_string()) texts.push_back(value.as_string());
  if (value.is_array())
    for (const Value& item : value.items()) collect(item, numbers, texts);
  if (value.is_object())
    for (const Value::Member& member : value.members()) collect(member.value, numbers, texts);
}

// What the text shows of a plan and its JSON lacks: numbers as they are rounded and scaled there ("25.0 %", "1.35GB").
class Missing {
 public:
  explicit Missing(const Value& json) {
    collect(json, numbers_, texts_);
    std::sort(texts_.begin(), texts_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }

  std::vector<std::string> in(const std::string& text) const {
    std::vector<std::string> missing;
    std::istringstream lines(text);
    bool drawing = false;  // its numbers are those of micro-batches
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("  activations kept", 0) == 0) drawing = false;
      if (!drawing) check(line, missing);
      if (line.rfind("schedule ", 0) == 0) drawing = true;
    }
    return missing;
  }

 private:
  // Strings of the JSON are told word by word: notes, names of units, who planned what.
  void check(std::string line, std::vector<std::string>& missing) const {
    for (const std::string& known : texts_)
      for (size_t at = 0; known.size() > 1 && (at = line.find(known)) != std::string::npos;)
        line.replace(at, known.size(), "_");
    static const std::regex number("([0-9]+)(\\.[0-9]+)?( %| GB| MB|[kMB]\\b)?");
    const bool table = line.rfind("  ", 0) == 0;
    for (std::sregex_iterator it(line.begin(), line.end(), number), end; it != end; ++it)
      if (!known((*it)[1].str() + (*it)[2].str(), (*it)[2].length(), (*it)[3].str(), table))
        missing.push_back(it->str() + " in \"" + line + "\"");
  }
  bool known(const std::string& text, int64_t places, const std::string& unit, bool table) const {
    const std::map<std::string, double> scales = {{"", 1},    {" %", 0.01}, {" GB", 1e9}, {" MB", 1e6},
                                                  {"k", 1e3}, {"M", 1e6},   {"B", 1e9}};
    std::vector<double> tried = {scales.at(unit)};
    if (unit.empty() && table) tried.push_back(1e6);  // the table of memory is in MB
    const int decimals = static_cast<int>(std::max<int64_t>(places - 1, 0));
    char shown[64];
    for (const double number : numbers_)
      for (const double scale : tried) {
        std::snprintf(shown, sizeof shown, "%.*f", decimals, number / scale);
        if (text == shown) return true;
      }
    return false;
  }

  std::vector<double> numbers_;
  std::vector<std::string> texts_;
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class PlanJson : public testing::TestWithParam<std::string> {};

TEST_P(PlanJson, has_every_number_that_the_text_shows) {
  const auto plan = plan_of(GetParam());
  if (!plan) return;  // its device has no plugins in this build, so there is no plan to show
  const std::string text = plan_text(*plan);
  const Value json = plan->to_json();
  EXPECT_EQ(joined(Missing(json).in(text)), "") << text;
  EXPECT_TRUE(parse_json(json.to_json(2), "plan") == json) << "what is written is what is read";
  Value less = json;
  less.erase("memory");
  EXPECT_FALSE(Missing(less).in(text).empty()) << "a number that is not in the JSON is found to be missing";
}

TEST(PlanJsonOf, a_cut_model_tells_who_computes_and_sends_what) {
  const RunPlan plan = plan_of("3d").value();
  const Value json = plan.to_json();
  for (const char* part : {"placement", "traffic", "schedule"}) {
    Value less = json;
    less.erase(part);
    EXPECT_FALSE(Missing(less).in(plan_text(plan)).empty()) << part;
  }
  double share = 0;
  int64_t next = 0;
  for (const Value& piece : json.find("placement")->items()) {
    EXPECT_EQ(piece.find("first")->as_int(), next);
    next = piece.find("last")->as_int();
    share += piece.find("cost_share")->as_double();
  }
  EXPECT_NEAR(share, 1, 1e-9);
  int64_t world = 1;
  for (const Value& axis : json.find("mesh")->items()) {
    EXPECT_EQ(axis.find("ranks_apart")->as_int(), world) << axis.find("axis")->as_string();
    world *= axis.find("size")->as_int();
  }
  EXPECT_EQ(world, json.find("run")->find("world_size")->as_int());
}

TEST(PlanJsonOf, a_copy_is_the_same_once_the_run_is_gone) {
  const RunPlan plan = plan_of("pp2").value();  // the plugins are destroyed
  RunPlan copy = plan;
  EXPECT_TRUE(copy.to_json() == plan.to_json());
  EXPECT_EQ(plan_text(copy), plan_text(plan));
  copy.batch.micro_batch_size += 1;
  EXPECT_FALSE(copy.to_json() == plan.to_json());
}

INSTANTIATE_TEST_SUITE_P(Of, PlanJson, testing::ValuesIn(configs_in("")),
                         [](const auto& info) { return identifier(info.param); });

}  // namespace
}  // namespace drivetrain::test
