// checkpoint_format/megatron: which folders are Megatron-LM's, and what a user is told.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/checkpoint_format.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

TEST(Megatron, folders_are_recognised_and_refused_by_name) {
  const TempFolder temporary;
  const Host host;
  const auto format = make_plugin<CheckpointFormat>(host, "megatron");
  const auto touch = [&](const std::string& name) {
    const std::filesystem::path path = temporary.path() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  };
  EXPECT_EQ(format->recognizes(temporary.path()), "");
  touch("a/iter_0000040/mp_rank_00/model_optim_rng.pt");
  touch("b/iter_0000040/.metadata"), touch("b/iter_0000040/metadata.json");
  EXPECT_EQ(format->recognizes(temporary.path() + "/a"), "Megatron-LM, form torch");
  EXPECT_EQ(format->recognizes(temporary.path() + "/a/iter_0000040"), "Megatron-LM, form torch");
  EXPECT_EQ(format->recognizes(temporary.path() + "/b"), "Megatron-LM, form torch_dist");
  EXPECT_FALSE(format->writes());
  try {
    format->open(temporary.path() + "/b", "");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::checkpoint);
    EXPECT_NE(std::string(e.what()).find("torch_dist"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace drivetrain::test
