// checkpoint_format/deepspeed: folders that DeepSpeed itself wrote (tests/golden/data), whole, incomplete and damaged.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/safetensors.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "support/plugin_under_test.h"
#include "support/spoilt_files.h"
#include "support/tensor_checkpoint.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;
const std::string kGolden = std::string(DRIVETRAIN_GOLDEN_DIR) + "/deepspeed_checkpoints";

struct DeepSpeedTest : ::testing::Test {
  // A copy of a golden folder, to be spoilt.
  std::string copy(const std::string& name) const {
    const std::string to = temporary_.path() + "/" + name;
    fs::copy(kGolden + "/" + name, to, fs::copy_options::recursive);
    return to;
  }
  // Code and text of what `open` throws.
  std::string refusal(const std::string& folder, const std::string& tag = "") const {
    try {
      format_->open(folder, tag);
    } catch (const Error& e) {
      return concat(static_cast<int>(e.code()), " ", e.what());
    }
    return "nothing was thrown";
  }
  void expect_refused(const std::string& folder, ErrorCode code, const std::vector<std::string>& words,
                      const std::string& tag = "") const {
    const std::string text = refusal(folder, tag);
    EXPECT_EQ(text.front(), '0' + static_cast<char>(code)) << text;
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << "\nin: " << text;
  }

  const TempFolder temporary_;
  const Host host_;
  const std::unique_ptr<CheckpointFormat> format_ = make_plugin<CheckpointFormat>(host_, "deepspeed");
};

at::Tensor read(const Checkpoint& checkpoint, const StoredTensor& t, const StateBox& box) {
  at::Tensor values = at::full({box.columns, box.rows}, 77, at::TensorOptions(t.dtype)).t();
  checkpoint.read(t.name, box, values);
  return values;
}

TEST_F(DeepSpeedTest, every_stage_gives_the_bits_that_deepspeed_tells) {
  for (const char* name : {"zero0", "zero2", "zero3", "bf16_zero1"}) {
    SCOPED_TRACE(name);
    const std::string folder = kGolden + "/" + name;
    EXPECT_NE(format_->recognizes(folder), "");
    const auto expected = SafetensorsFile::open(folder + ".safetensors");
    for (const std::string& place : {folder, folder + "/global_step2"}) {
      const auto checkpoint = format_->open(place, "");
      EXPECT_EQ(checkpoint->facts().find("step")->as_int(), 2);
      EXPECT_EQ(checkpoint->facts().find("updates")->as_int(), 2);
      EXPECT_TRUE(checkpoint->verify().empty());
      size_t known = 0;
      for (const StoredTensor& t : checkpoint->tensors()) {
        const bool tied = t.name == "model/lm_head.weight";
        known += !tied;
        const at::Tensor wanted = expected.tensor(tied ? "model/transformer.wte.weight" : t.name);
        ASSERT_EQ(wanted.sizes(), at::IntArrayRef(t.shape)) << t.name;
        const at::Tensor matrix = t.shape.size() > 1 ? wanted : wanted.unsqueeze(1);
        const StateBox all{0, 0, matrix.size(0), matrix.size(1)};
        EXPECT_TRUE(at::equal(read(*checkpoint, t, all), matrix)) << t.name;
        const StateBox part{1, all.columns / 2, all.rows - 2, all.columns - all.columns / 2};
        EXPECT_TRUE(
            at::equal(read(*checkpoint, t, part), matrix.narrow(0, 1, part.rows).narrow(1, part.column, part.columns)))
            << t.name;
      }
      EXPECT_EQ(known, expected.names().size());
    }
  }
}

TEST_F(DeepSpeedTest, a_missing_rank_is_told) {
  const std::string folder = copy("zero2");
  fs::remove(folder + "/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt");
  expect_refused(folder, ErrorCode::checkpoint, {folder, "2 data-parallel ranks", "files of 1"});
  const std::string third = copy("zero3");
  fs::remove(third + "/global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt");
  expect_refused(third, ErrorCode::checkpoint, {"rank 0 is missing"});
}

TEST_F(DeepSpeedTest, latest_is_compared_with_what_is_there) {
  const std::string folder = copy("zero2");
  std::ofstream(folder + "/latest") << "global_step7\n";
  expect_refused(folder, ErrorCode::config, {"latest", "global_step7", "global_step2"});
  fs::remove(folder + "/latest");
  EXPECT_EQ(format_->open(folder, "")->facts().find("step")->as_int(), 2);
  fs::copy(folder + "/global_step2", folder + "/global_step10");
  expect_refused(folder, ErrorCode::config, {"several tags", "global_step2, global_step10"});
  EXPECT_EQ(format_->open(folder, "global_step2")->facts().find("step")->as_int(), 2);
  expect_refused(folder, ErrorCode::config, {"no tag global_step3", "global_step10"}, "global_step3");
  std::ofstream(folder + "/latest") << "global_step2";
  const Value notes = *format_->open(folder, "")->facts().find("notes");
  ASSERT_EQ(notes.items().size(), 1u);
  EXPECT_NE(notes.items()[0].as_string().find("global_step10"), std::string::npos);
}

TEST_F(DeepSpeedTest, what_is_not_supported_is_refused_by_name) {
  const std::string folder = copy("zero2");
  std::ofstream(folder + "/global_step2/layer_03-model_00-model_states.pt") << "x";
  EXPECT_NE(format_->recognizes(folder), "");
  expect_refused(folder, ErrorCode::checkpoint, {"layer_03-model_00-model_states.pt", "pipeline"});
  EXPECT_EQ(format_->recognizes(temporary_.path()), "");
  EXPECT_EQ(format_->recognizes(std::string(DRIVETRAIN_GOLDEN_DIR) + "/gpt2_tiny/model"), "");
  EXPECT_EQ(format_->recognizes(kGolden + "/dcp"), "");
  fs::create_directory(folder + "/global_step2/zero");  // a universal checkpoint has one
  EXPECT_EQ(format_->recognizes(folder), "");
}

TEST_F(DeepSpeedTest, a_flipped_value_is_found) {
  const std::string folder = copy("zero2");
  const std::string file = folder + "/global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt";
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(8000);  // within the values
  bytes.put('\x5a');
  bytes.close();
  const auto checkpoint = format_->open(folder, "");
  ASSERT_EQ(checkpoint->verify().size(), 1u);
  EXPECT_NE(checkpoint->verify()[0].find(file), std::string::npos) << checkpoint->verify()[0];
  EXPECT_NE(checkpoint->verify()[0].find("CRC-32"), std::string::npos);
}

// Descriptions that say something else, with checksums that fit: an Error(checkpoint), or other values, and never more.
TEST_F(DeepSpeedTest, spoilt_descriptions_are_an_error_and_never_more) {
  Spoiler spoiler(11);
  int refused = 0;
  for (const char* name : {"zero0", "zero2", "zero3", "bf16_zero1"}) {
    const std::string folder = copy(name);
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder + "/global_step2")) files.push_back(entry.path().string());
    for (int i = 0; i < 400; ++i) {
      const std::string& file = files[spoiler.pick(files.size())];
      const std::string whole = Spoiler::read(file);
      std::string spoilt = whole;
      spoiler.change_pickle(spoilt);
      Spoiler::write(file, spoilt);
      try {
        read_tensors(*format_->open(folder, ""));
      } catch (const Error& e) {
        ++refused;
        EXPECT_EQ(e.code(), ErrorCode::checkpoint) << e.what();
        EXPECT_NE(std::string(e.what()).find(folder), std::string::npos) << e.what();
      }
      Spoiler::write(file, whole);
    }
  }
  EXPECT_GT(refused, 800);
}

}  // namespace
}  // namespace drivetrain::test
