// checkpoint_format/deepspeed_universal: what we write comes back; folders are found or refused.
// That DeepSpeed reads it is shown by tools/peers/check_deepspeed.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/toolkit/torch_files/torch_file.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "support/plugin_under_test.h"
#include "support/tensor_checkpoint.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

struct UniversalTest : ::testing::Test {
  UniversalTest() {
    Value facts = Value::object();
    facts.set("step", 12), facts.set("updates", 11), facts.set("lr", 0.5);
    format_->write(temporary_.path(), TensorCheckpoint(wanted_, facts));
  }
  std::string refusal(const std::string& folder, const std::string& tag = "") const {
    try {
      format_->open(folder, tag);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  }
  std::string place(const std::string& name = "") const {
    return temporary_.path() + "/global_step12_universal" + (name.empty() ? "" : "/" + name);
  }
  const TempFolder temporary_;
  const Host host_;
  const at::Tensor a_ = at::randn({7, 3});
  const NamedTensors wanted_{
      {"model/h.0.a", a_}, {"optimizer/h.0.a.exp_avg", a_ * 2}, {"optimizer/h.0.a.exp_avg_sq", a_* a_}};
  const std::unique_ptr<CheckpointFormat> format_ = make_plugin<CheckpointFormat>(host_, "deepspeed_universal");
};

TEST_F(UniversalTest, what_we_write_comes_back) {
  for (const std::string& folder : {temporary_.path(), place()}) {
    EXPECT_NE(format_->recognizes(folder), "");
    const auto checkpoint = format_->open(folder, "");
    EXPECT_EQ(checkpoint->facts().find("step")->as_int(), 12);
    EXPECT_EQ(checkpoint->facts().find("updates")->as_int(), 11);
    const NamedTensors found = read_tensors(*checkpoint);
    ASSERT_EQ(found.size(), wanted_.size());
    for (const auto& [name, tensor] : wanted_) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  }
  const auto file = TorchFile::open(place("zero/optimizer_state.pt"));
  const auto& groups = file->tree().list(file->tree().at(file->root(), "param_groups"), "param_groups");
  EXPECT_EQ(file->tree().real(file->tree().at(*groups.at(0), "lr"), "lr"), 0.5);
}

// Stage 3 writes flat values; their shapes stand in the model states.
TEST_F(UniversalTest, flat_values_get_their_shape) {
  write_torch_file(place("zero/h.0.a/exp_avg.pt"), a_.view({-1}));
  EXPECT_TRUE(at::equal(read_tensors(*format_->open(place(), "")).at("optimizer/h.0.a.exp_avg"), a_));
  write_torch_file(place("zero/h.0.a/exp_avg.pt"), a_.view({-1}).narrow(0, 0, 20).clone());
  EXPECT_NE(refusal(place()).find("has 20 elements"), std::string::npos) << refusal(place());
  for (const char* name : {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"})
    fs::remove(place(name));
  EXPECT_NE(refusal(place()).find("tells its shape"), std::string::npos) << refusal(place());
}

TEST_F(UniversalTest, what_is_missing_is_told) {
  fs::remove(place("zero/h.0.a/fp32.pt"));
  fs::create_directories(place("zero/b"));
  fs::copy(place("zero/h.0.a/exp_avg.pt"), place("zero/b/fp32.pt"));
  EXPECT_NE(refusal(place()).find("h.0.a has no fp32.pt"), std::string::npos) << refusal(place());
  EXPECT_NE(refusal(temporary_.path(), "global_step3_universal").find("there are global_step12_universal"),
            std::string::npos);
  EXPECT_EQ(format_->recognizes(place("zero")), "");
}

TEST_F(UniversalTest, a_name_that_is_no_name_of_a_folder_is_refused) {
  const TempFolder other;
  EXPECT_THROW(format_->write(other.path(), TensorCheckpoint({{"model/../a", a_}})), Error);
}

}  // namespace
}  // namespace drivetrain::test
