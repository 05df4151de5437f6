// Every run of configs/ plans for the ranks that its comment starts: all its keys known, all its plugins there,
// nothing allocated or trained. For all files, one process does what rank 0 of `launch -n N CONFIG --plan` does.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "cli/parse.h"
#include "configs/config_files.h"
#include "shared/commands.h"
#include "shared/run_command.h"

namespace drivetrain::test {
namespace {

class Plans : public testing::TestWithParam<std::string> {};

struct Answer {
  int code;
  std::string printed, errors;
};

// Of rank 0 of so many ranks on this host.
Answer ask(const std::vector<std::string>& words, int64_t ranks) {
  for (const char* name : {"RANK", "LOCAL_RANK"}) setenv(name, "0", 1);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) setenv(name, std::to_string(ranks).c_str(), 1);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_command(cli::parse(words), {{"train", train_command}});
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

// The device that the file names, without asking what reads configs.
std::string device_of(const std::string& name) {
  std::ifstream file(path_of(name));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.find("\"device\": \"cuda\"") == std::string::npos ? "cpu" : "cuda";
}

TEST_P(Plans, for_the_ranks_that_its_comment_starts) {
  if (!has_plugins_for(device_of(GetParam()))) return;  // this build has none, and refuses it
  const Answer answer = ask({"train", path_of(GetParam()), "--plan"}, ranks_of(GetParam()));
  EXPECT_EQ(answer.code, 0) << "configs/" << GetParam() << ".json: " << answer.errors;
  EXPECT_NE(answer.printed.find("parameters"), std::string::npos) << answer.printed;
}

// The answer to a file that does not plan, so that the codes above say something.
TEST(PlansCanFail, with_a_key_that_nobody_knows_and_a_number_of_ranks_that_does_not_fit) {
  const Answer key = ask({"train", path_of("zero3"), "--plan", "--set", "zero_optimisation.stage=3"}, 2);
  EXPECT_EQ(key.code, 2) << key.printed;
  EXPECT_NE(key.errors.find("zero_optimisation"), std::string::npos) << key.errors;
  const Answer ranks = ask({"train", path_of("3d"), "--plan"}, 7);
  EXPECT_EQ(ranks.code, 2) << ranks.printed;
}

std::vector<std::string> all_configs() {
  std::vector<std::string> names = configs_in("");
  for (const std::string& name : configs_in("bench/")) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Of, Plans, testing::ValuesIn(all_configs()),
                         [](const auto& info) { return identifier(info.param); });

}  // namespace
}  // namespace drivetrain::test
