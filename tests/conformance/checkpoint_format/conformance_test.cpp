// The conformance suite of checkpoint_format over every built implementation, with folders that other programs wrote.
#include <gtest/gtest.h>

#include <filesystem>

#include <drivetrain/testkit/checkpoint_format/suite.h>
#include <drivetrain/testkit/kit/host.h>

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

// Of all golden folders those that the format recognizes: nothing here knows which are whose.
std::vector<std::string> folders_of(const FormatMaker& make) {
  std::vector<std::string> folders;
  const auto format = make();
  for (const char* group : {"deepspeed_checkpoints", "megatron_checkpoints"}) {
    const fs::path above = fs::path(DRIVETRAIN_GOLDEN_DIR) / group;
    if (!fs::exists(above)) continue;
    for (const auto& entry : fs::directory_iterator(above))
      if (entry.is_directory() && !format->recognizes(entry.path()).empty()) folders.push_back(entry.path());
  }
  return folders;
}

TEST(CheckpointFormatConformance, every_built_format_passes) {
  const std::vector<std::string> names = installed_plugins().names(CheckpointFormat::kKind);
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    Host host;
    const FormatMaker make = [&] { return installed_plugins().make<CheckpointFormat>(name, "{}", host.services); };
    const std::vector<std::string> folders = folders_of(make);
    EXPECT_TRUE(make()->writes() || !folders.empty()) << "nothing to try it on";
    run_checkpoint_format_cases(make, folders);
  }
}

}  // namespace
}  // namespace drivetrain::test
