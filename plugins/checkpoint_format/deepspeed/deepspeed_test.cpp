// checkpoint_format/deepspeed: folders that DeepSpeed itself wrote (tests/golden/data), whole, incomplete and damaged.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/toolkit/torch_files/torch_file.h>

#include <drivetrain/testkit/kit/temp_folder.h>

#include "keys.h"
#include "support/key_table_rows.h"
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
  for (const char* name : {"zero0", "zero2", "zero3", "bf16_zero1", "bf16_zero1_fp32", "bf16_zero0", "bf16_zero0_fused",
                           "zero0_groups", "zero1_frozen", "zero3_groups"}) {
    SCOPED_TRACE(name);
    const std::string folder = kGolden + "/" + name;
    EXPECT_NE(format_->recognizes(folder), "");
    const auto expected = SafetensorsFile::open(folder + ".safetensors");
    for (const std::string& place : {folder, folder + "/global_step2"}) {
      const auto checkpoint = format_->open(place, "");
      EXPECT_EQ(checkpoint->facts().find("step")->as_int(), 2);
      // The wrapper for 16 bits updates once with gradients of 0 when it is made, which its optimizer counts.
      const bool wrapped = std::string(name).starts_with("bf16_zero0");
      EXPECT_EQ(checkpoint->facts().find("updates")->as_int(), wrapped ? 3 : 2);
      EXPECT_EQ(checkpoint->facts().find("notes")->items().size(), wrapped ? 1u : 0u);
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

TEST_F(DeepSpeedTest, moments_that_the_file_does_not_tell_the_owner_of_are_left_out_and_told) {
  const auto checkpoint = format_->open(kGolden + "/zero0_frozen", "");
  const auto expected = SafetensorsFile::open(kGolden + "/zero0_frozen.safetensors");
  size_t weights = 0;
  for (const auto& [name, tensor] : read_tensors(*checkpoint)) {
    ASSERT_TRUE(name.starts_with("model/")) << name;
    weights += expected.contains(name);
    if (expected.contains(name)) {
      EXPECT_TRUE(at::equal(tensor, expected.tensor(name))) << name;
    }
  }
  EXPECT_EQ(weights, 16u);
  const std::string notes = checkpoint->facts().find("notes")->to_json();
  EXPECT_NE(notes.find("7 of 8 parameters of shape [8] are trained"), std::string::npos) << notes;
}

// A weight that was changed after it was saved is no rounded value of the optimizer's any more.
TEST_F(DeepSpeedTest, float32_values_of_another_model_are_refused) {
  const std::string folder = copy("bf16_zero0"), file = folder + "/global_step2/mp_rank_00_model_states.pt";
  const auto opened = TorchFile::open(file);
  const PickleNode& module = opened->tree().at(opened->root(), "module");
  const TorchTensor weight = opened->tensor(opened->tree().at(module, "transformer.h.0.mlp.c_fc.weight"), "c_fc");
  std::string bytes = Spoiler::read(file);
  const at::Tensor values = opened->read(weight);
  const std::string held(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  const size_t place = bytes.find(held);
  ASSERT_NE(place, std::string::npos);
  std::swap(bytes[place], bytes[place + 3]);
  Spoiler::write(file, bytes);
  expect_refused(folder, ErrorCode::checkpoint, {file});
}

// The key of a dict under another name, with the checksum mended: the same as a file that says something else there.
std::string without_key(const std::string& bytes, const std::string& key) {
  std::string changed = bytes;
  const std::string text = std::string("X") + std::string({static_cast<char>(key.size()), 0, 0, 0}) + key;
  const size_t directory = changed.find("PK\x01\x02");
  for (size_t at = changed.find(text); at < directory; at = changed.find(text, at + 1))
    changed[at + 5] = '~';  // its first letter
  Spoiler::mend(changed);
  return changed;
}

// What a user reads of a folder: tensors, facts and notes; or the error.
struct Outcome {
  NamedTensors tensors;
  std::string facts, notes, error;

  bool same_as(const Outcome& other) const {
    bool equal = error.empty() && other.error.empty() && facts == other.facts && tensors.size() == other.tensors.size();
    for (const auto& [name, values] : other.tensors)
      equal = equal && tensors.contains(name) && at::equal(tensors.at(name), values);
    return equal;
  }
};

Outcome outcome_of(const CheckpointFormat& format, const std::string& folder) {
  Outcome outcome;
  try {
    const auto checkpoint = format.open(folder, "");
    outcome.tensors = read_tensors(*checkpoint);
    Value facts = checkpoint->facts();
    outcome.notes = facts.find("notes")->to_json();
    facts.erase("notes");
    outcome.facts = facts.to_json();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::checkpoint) << e.what();
    outcome.error = e.what();
  }
  return outcome;
}

// Each key of the table is taken away from each file: one without effect changes nothing and is named under its other
// name; an honoured or a compared one is missed by some file at least.
TEST_F(DeepSpeedTest, every_key_does_what_the_table_says) {
  using namespace deepspeed;
  // The golden folders have no buffers, no skipped steps, one rank of tensors, no dynamic scale and no such padding.
  const std::set<std::string> not_held = {"buffer_names", "skipped_steps", "mp_world_size", "loss_scaler",
                                          "param_alignment_paddings"};
  std::map<std::string, bool> acted;
  for (const char* name : {"zero0", "zero2", "zero3", "bf16_zero1", "bf16_zero0", "zero1_frozen", "zero3_groups"}) {
    const std::string folder = copy(name);
    const Outcome before = outcome_of(*format_, folder);
    for (const auto& entry : fs::directory_iterator(folder + "/global_step2")) {
      const std::string file = entry.path().string(), whole = Spoiler::read(file);
      const bool model = file.ends_with("model_states.pt");
      for (const KeyRow& row : keys()) {
        if (model != (row.of == std::string(kModelStates))) continue;
        const std::string changed = without_key(whole, row.names);
        if (changed == whole) continue;
        Spoiler::write(file, changed);
        const Outcome after = outcome_of(*format_, folder);
        const std::string text = concat(name, ", ", fs::path(file).filename().string(), ": ", row.names, " is ",
                                        word_of(row.use), "; without it: ", after.error, after.notes);
        acted[row.names] = acted[row.names] || !after.same_as(before);
        if (row.use == KeyUse::no_effect) {
          EXPECT_TRUE(after.same_as(before)) << text;
          // The notes are of the first of several ranks.
          const bool named = after.notes.find("~" + std::string(row.names).substr(1)) != std::string::npos;
          EXPECT_TRUE(named || file.find("_rank_1_") != std::string::npos) << text;
        }
        Spoiler::write(file, whole);
      }
    }
  }
  EXPECT_GT(acted.size(), 25u);
  for (const KeyRow& row : keys())
    if ((row.use == KeyUse::honoured || row.use == KeyUse::compared) && !not_held.contains(row.names)) {
      EXPECT_TRUE(acted[row.names]) << row.names << " is " << word_of(row.use) << ", and nothing changes without it";
    }
}

TEST_F(DeepSpeedTest, the_readme_shows_the_table) {
  std::vector<std::string> rows;
  for (const KeyRow& row : deepspeed::keys()) rows.push_back(readme_row(row));
  EXPECT_EQ(rows_missing_in(DRIVETRAIN_SOURCE_DIR "/plugins/checkpoint_format/deepspeed/README.md", rows), "");
}

TEST_F(DeepSpeedTest, what_a_user_put_beside_is_named_and_not_used) {
  const std::string folder = copy("zero2"), file = folder + "/global_step2/mp_rank_00_model_states.pt";
  Spoiler::write(file, without_key(Spoiler::read(file), "lr_scheduler"));  // "~r_scheduler" is nobody's key
  const std::string notes = format_->open(folder, "")->facts().find("notes")->to_json();
  EXPECT_NE(notes.find("~r_scheduler"), std::string::npos) << notes;
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
  for (const char* name : {"zero0", "zero2", "zero3", "bf16_zero1", "bf16_zero0", "bf16_zero0_fused", "zero0_groups"}) {
    const std::string folder = copy(name);
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder + "/global_step2")) files.push_back(entry.path().string());
    for (int i = 0; i < 300; ++i) {
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
