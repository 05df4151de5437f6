// A run whose model is frozen and whose strategy adds a matrix to every linear layer (adapter.cpp), by the program:
// what it starts with, what it keeps memory for, what stands in checkpoints, and what is written in the end.
#include <ATen/ops/equal.h>

#include <drivetrain/safetensors.h>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

struct FrozenModel : ProgramTest {
  // A folder of weights to begin with: those of a run of the model alone.
  FrozenModel() {
    const Ran base = run("train tiny.json --set output_dir=base");
    EXPECT_EQ(base.code, 0) << base.output;
  }
  static std::string adapter(const std::string& params = "{}") {
    return " --plugin-path " DRIVETRAIN_ADAPTER_DIR " --set 'strategy={\"type\": \"adapter\", \"params\": " + params +
           "}'";
  }
  std::string base() const { return " --set model.params.from=" + path("base/final"); }
  Ran adapt(const std::string& output, const std::string& more, const std::string& params = "{}") const {
    return run("train tiny.json --set output_dir=" + output + base() + adapter(params) + " " + more);
  }
  SafetensorsFile weights(const std::string& file) const { return SafetensorsFile::open(path(file)); }

  // Measured and planned, between what the deltas need without gaps and with them.
  static void expect_bytes(const Value& memory, const char* memory_class, int64_t least, int64_t most) {
    const Value& rank = memory.find("ranks")->items().at(0);
    for (const Value* figures : {&rank, rank.find("planned")}) {
      EXPECT_GE(figures->find(memory_class)->as_int(), least) << memory_class << " in " << figures->to_json();
      EXPECT_LE(figures->find(memory_class)->as_int(), most) << memory_class << " in " << figures->to_json();
    }
  }

  // The folder's weights are those of the base with the deltas, exactly.
  void expect_merged(const std::string& folder, const std::string& deltas_file) const {
    const SafetensorsFile merged = weights(folder + "/model.safetensors"),
                          from = weights("base/final/model.safetensors"), deltas = weights(deltas_file);
    EXPECT_EQ(merged.names(), from.names());
    size_t changed = 0;
    for (const std::string& name : from.names()) {
      const auto& [delta, transposed] = delta_of(name, deltas);
      const at::Tensor was = from.tensor(name);
      const at::Tensor wanted = !delta.defined() ? was : was.add(transposed ? delta.t() : delta);
      EXPECT_TRUE(at::equal(merged.tensor(name), wanted)) << name;
      changed += !at::equal(merged.tensor(name), was);
    }
    EXPECT_EQ(changed, deltas.names().size());
  }
  // GPT-2 stores what is [out, in] here as [in, out].
  static std::pair<at::Tensor, bool> delta_of(const std::string& name, const SafetensorsFile& deltas) {
    const std::pair<const char*, const char*> ours[] = {{"attn.c_attn.weight", "attn.qkv.weight"},
                                                        {"attn.c_proj.weight", "attn.proj.weight"},
                                                        {"mlp.c_fc.weight", "mlp.fc.weight"},
                                                        {"mlp.c_proj.weight", "mlp.proj.weight"}};
    for (const auto& [theirs, end] : ours) {
      if (!name.ends_with(theirs)) continue;
      for (const std::string& known : deltas.names())
        if (known.ends_with(end)) return {deltas.tensor(known), true};
    }
    return {};
  }
};

TEST_F(FrozenModel, the_start_says_what_the_folder_does_not_hold) {
  const Ran ran = adapt("run", "");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"has no weights for 4 parameters that strategies added (", "block.0.", ".delta",
                           "and 1 more): they start by their own initial rules"});
}

TEST_F(FrozenModel, the_end_is_the_merged_model_and_the_deltas_beside_it) {
  const Ran ran = adapt("run", "");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_merged("run/final", "run/final/deltas/deltas.safetensors");
  EXPECT_NE(file_bytes(path("run/final/deltas/deltas.json")).find("\"deltas\": 4"), std::string::npos);
}

TEST_F(FrozenModel, ranks_that_share_the_state_write_the_same) {
  std::string first;  // all bits of the deltas
  for (const char* how :
       {"data_parallel=ddp", "zero_optimization.stage=1", "zero_optimization.stage=3", "data_parallel=fsdp"}) {
    SCOPED_TRACE(how);
    const Ran ran = run("launch -n 2 tiny.json --set output_dir=shared" + base() + adapter() + " --set " + how);
    ASSERT_EQ(ran.code, 0) << ran.output;
    expect_merged("shared/final", "shared/final/deltas/deltas.safetensors");
    const std::string deltas = file_bytes(path("shared/final/deltas/deltas.safetensors"));
    if (first.empty()) first = deltas;
    EXPECT_TRUE(deltas == first);
    std::filesystem::remove_all(path("shared"));
  }
}

TEST_F(FrozenModel, deltas_that_are_read_are_those_that_were_written) {
  ASSERT_EQ(adapt("run", "").code, 0);
  const Ran ran = adapt("on", "--set optimizer.params.lr=0", R"({"from": ")" + path("run/final/deltas") + "\"}");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"strategy/adapter: 4 parameters from " + path("run/final/deltas")});
  EXPECT_EQ(ran.output.find("start by their own"), std::string::npos) << ran.output;
  expect_merged("on/final", "run/final/deltas/deltas.safetensors");
  EXPECT_EQ(ran.output.find("cannot be checked"), std::string::npos) << ran.output;

  std::string bytes = file_bytes(path("run/final/deltas/deltas.safetensors"));
  bytes.replace(bytes.find("base_digest"), 4, "some");  // as of another program, which does not say the base
  write("run/final/deltas/deltas.safetensors", bytes);
  const Ran unsaid = adapt("unsaid", "", R"({"from": ")" + path("run/final/deltas") + "\"}");
  ASSERT_EQ(unsaid.code, 0) << unsaid.output;
  expect_says(unsaid.output, {"does not say with which weights it was trained", "cannot be checked"});
}

TEST_F(FrozenModel, a_folder_of_deltas_that_lacks_one_is_refused) {
  std::filesystem::create_directories(path("empty"));
  const Ran none = adapt("on", "", R"({"from": ")" + path("empty") + "\"}");
  EXPECT_EQ(none.code, 2) << none.output;
  expect_says(none.output, {path("empty"), "has no deltas.safetensors"});
  std::filesystem::copy_file(path("base/final/model.safetensors"), path("empty/deltas.safetensors"));
  const Ran others = adapt("on", "", R"({"from": ")" + path("empty") + "\"}");
  EXPECT_EQ(others.code, 2) << others.output;
  expect_says(others.output, {"is missing; it holds block.0.", "belongs to nothing in the model"});
}

TEST_F(FrozenModel, a_strategy_may_keep_the_model_out_of_the_end) {
  const Ran ran = adapt("run", "--set checkpoint_policy=every", R"({"exports": false})");
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_TRUE(std::filesystem::exists(path("run/final/deltas.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(path("run/final/model.safetensors")));
  // Its end is known for what it is: a longer run keeps it under another name.
  const Ran more =
      adapt("run", "--resume auto --set checkpoint_policy=every --set train_steps=7", R"({"exports": false})");
  ASSERT_EQ(more.code, 0) << more.output;
  EXPECT_TRUE(std::filesystem::exists(path("run/final-step-5/deltas.safetensors"))) << more.output;
  const Ran done = adapt("run", "--set checkpoint_policy=every --set train_steps=7", R"({"exports": false})");
  expect_says(done.output, {"holds a run that is done"});
}

TEST_F(FrozenModel, frozen_parameters_have_neither_gradients_nor_state) {
  for (const char* how : {"data_parallel=false", "data_parallel=ddp", "zero_optimization.stage=1",
                          "zero_optimization.stage=2", "zero_optimization.stage=3", "data_parallel=fsdp"}) {
    SCOPED_TRACE(how);
    const Ran ran = adapt("run", concat("--set ", how));
    ASSERT_EQ(ran.code, 0) << ran.output;
    const Value memory = read_json_file(path("run/memory.json"));
    // Four matrices of 16 hidden numbers: 3 x 16, 16, 4 x 16 and 16 rows or columns; every tensor begins on a block of
    // 1024 elements. Two moments in float32.
    const int64_t elements = 16 * (48 + 16 + 64 + 64), blocks = 4 * 1024;
    expect_bytes(memory, "gradients", elements * 4, blocks * 4);
    expect_bytes(memory, "optimizer", 2 * elements * 4, 2 * blocks * 4);
    std::filesystem::remove_all(path("run"));
  }
}

TEST_F(FrozenModel, a_checkpoint_refers_to_the_frozen_base) {
  const std::string saving = "--set checkpoint_policy=every --set train_steps=";
  const Ran ran = adapt("run", saving + "3");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"checkpoints refer to " + path("base/final") + " for ", " frozen parameters"});
  const Ran shown = run("checkpoint show run");
  EXPECT_EQ(shown.output.find("model/block.0.norm1.weight"), std::string::npos) << shown.output;
  expect_says(shown.output, {"model/block.0."});
  ASSERT_EQ(adapt("straight", saving + "6").code, 0);
  const Ran more = adapt("run", saving + "6 --resume auto");
  ASSERT_EQ(more.code, 0) << more.output;
  for (const char* file : {"model.safetensors", "deltas/deltas.safetensors"})
    EXPECT_TRUE(file_bytes(path(concat("run/final/", file))) == file_bytes(path(concat("straight/final/", file))))
        << file;
}

TEST_F(FrozenModel, a_base_that_was_changed_is_refused_and_a_copy_is_not) {
  const std::string saving = "--set checkpoint_policy=every --set train_steps=";
  ASSERT_EQ(adapt("run", saving + "3").code, 0);
  std::filesystem::rename(path("base"), path("moved"));
  const std::string there = " --resume auto --set model.params.from=" + path("moved/final");
  const Ran gone = adapt("run", saving + "6 --resume auto");
  EXPECT_EQ(gone.code, 2) << gone.output;
  expect_says(gone.output, {path("base/final")});
  const Ran copy = run("train tiny.json --set output_dir=run" + adapter() + " " + saving + "4" + there);
  EXPECT_EQ(copy.code, 0) << copy.output;
  std::fstream file(path("moved/final/model.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-3, std::ios::end), file.put('\x11'), file.close();
  const Ran changed = run("train tiny.json --set output_dir=run" + adapter() + " " + saving + "6" + there);
  EXPECT_EQ(changed.code, 6) << changed.output;
  expect_says(changed.output, {"refers to the frozen weights of " + path("moved/final"), "digest", "by now that folder",
                               "holds others", "digest", "model.params.from=FOLDER"});
}

TEST_F(FrozenModel, convert_merges_and_knows_the_base) {
  ASSERT_EQ(adapt("run", "--set checkpoint_policy=every").code, 0);
  const std::string here = " --plugin-path " DRIVETRAIN_ADAPTER_DIR;
  const Ran made = run("checkpoint convert run hf --to hf" + here);
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_TRUE(file_bytes(path("hf/model.safetensors")) == file_bytes(path("run/final/model.safetensors")));
  EXPECT_TRUE(file_bytes(path("hf/deltas/deltas.safetensors")) ==
              file_bytes(path("run/final/deltas/deltas.safetensors")));
  const Ran other = run("checkpoint convert run dcp --to dcp" + here);
  EXPECT_EQ(other.code, 2) << other.output;
  expect_says(other.output, {"4 parameters that strategies added", "checkpoint convert --to hf"});
}

TEST_F(FrozenModel, a_run_begins_with_a_checkpoint_that_refers_to_a_base) {
  ASSERT_EQ(adapt("run", "--set checkpoint_policy=every").code, 0);
  const Ran on =
      run("train tiny.json --set output_dir=on --set optimizer.params.lr=0 --set model.params.from=" + path("run") +
          adapter());
  ASSERT_EQ(on.code, 0) << on.output;
  EXPECT_TRUE(file_bytes(path("on/final/model.safetensors")) == file_bytes(path("run/final/model.safetensors")));
  const Ran alone = run("train tiny.json --set output_dir=alone --set model.params.from=" + path("run"));
  EXPECT_EQ(alone.code, 2) << alone.output;
  expect_says(alone.output, {".delta", "belongs to nothing in the model"});
}

// The folder of the base does not have them.
TEST_F(FrozenModel, rows_that_were_added_to_the_base_stand_in_checkpoints_and_in_the_end) {
  const std::string grown =
      R"(--set model.params.vocab_size=70 --set 'model.params.resize_embeddings={"vocab_size": 70, "initial_rows": "init"}' )";
  const std::string saving = grown + "--set checkpoint_policy=every --set train_steps=";
  const Ran ran = adapt("run", saving + "3");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"embedding.word.weight: 6 rows are added to the 64 of " + path("base/final"),
                           "they start by its initial rule"});
  const Ran shown = run("checkpoint show run");
  expect_says(shown.output, {"model/embedding.word.weight"});
  EXPECT_EQ(shown.output.find("model/block.0.norm1.weight"), std::string::npos) << shown.output;
  ASSERT_EQ(adapt("straight", saving + "6").code, 0);
  const Ran more = adapt("run", saving + "6 --resume auto");
  ASSERT_EQ(more.code, 0) << more.output;
  EXPECT_TRUE(file_bytes(path("run/final/model.safetensors")) == file_bytes(path("straight/final/model.safetensors")));
  EXPECT_EQ(weights("run/final/model.safetensors").shape("transformer.wte.weight").at(0), 70);
  const Ran made = run("checkpoint convert run hf --to hf --plugin-path " DRIVETRAIN_ADAPTER_DIR);
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_TRUE(file_bytes(path("hf/model.safetensors")) == file_bytes(path("run/final/model.safetensors")));
  const Ran lost = adapt("lost", grown, R"({"exports": false})");
  EXPECT_EQ(lost.code, 2) << lost.output;
  expect_says(lost.output,
              {"rows are added to embedding.word.weight", "strategy/adapter keeps the model's weights out"});
}

TEST_F(FrozenModel, what_a_strategy_says_of_its_weights_is_checked_before_the_run) {
  const std::pair<const char*, std::vector<std::string>> mistakes[] = {
      {"names_nothing", {"strategy/adapter", "weight_folders", "names block.9.delta", "has no such parameter"}},
      {"names_one_twice", {"strategy/adapter", "weight_folders", ".delta is named twice"}},
      {"leaves_the_folder", {"strategy/adapter", "weight_folders", "../deltas", "plain names were wanted"}},
      {"lies_among_the_model", {"deltas.safetensors", "would lie among the files of the model's weights"}}};
  for (const auto& [mistake, says] : mistakes) {
    SCOPED_TRACE(mistake);
    const Ran ran = run("config check tiny.json" + base() + adapter(concat(R"({"mistake": ")", mistake, "\"}")));
    EXPECT_EQ(ran.code, 3) << ran.output;
    expect_says(ran.output, says);
  }
  const Ran frozen = run("config check tiny.json" + base() + adapter(R"({"mistake": "freezes_all"})"));
  EXPECT_EQ(frozen.code, 2) << frozen.output;
  expect_says(frozen.output, {"nothing would be trained: all 20 parameters of the model are frozen"});
}

TEST_F(FrozenModel, a_strategy_that_merges_into_another_shape_is_named) {
  const Ran ran = adapt("run", "", R"({"mistake": "merges_another_shape"})");
  EXPECT_EQ(ran.code, 3) << ran.output;
  expect_says(ran.output, {"strategy/adapter", "merge returned", "wanted Float"});
  EXPECT_FALSE(std::filesystem::exists(path("run/final")));
}

// Whether the end has the model as well or the deltas alone, with a checkpoint and without one.
TEST_F(FrozenModel, a_run_is_evaluated_with_its_deltas) {
  const std::string set = R"( --set 'eval={"sets": {"same": {"type": "perplexity", "params": {"iters": 2,
      "source": {"type": "synthetic", "params": {"seq_length": 8}}}}}}')";
  const std::string at_end = R"( --set 'checkpoint_policy={"type": "every", "params": {"at_end": true}}')";
  for (const std::string exports : {"true", "false"}) {
    const Ran ran = adapt("run" + exports, set + at_end, "{\"exports\": " + exports + "}");
    ASSERT_EQ(ran.code, 0) << ran.output;
    const double trained = read_metrics(path("run" + exports)).back().find("eval/same/loss")->as_double();
    const std::string command = "evaluate run" + exports + " same --json --plugin-path " DRIVETRAIN_ADAPTER_DIR;
    const auto loss = [&] {
      const Ran evaluated = run(command + " 2>/dev/null");
      EXPECT_EQ(evaluated.code, 0) << run(command).output;
      return parse_json(evaluated.output, "output").find("results")->find("same")->find("loss,none")->as_double();
    };
    EXPECT_NEAR(loss(), trained, 4e-6) << exports;
    std::filesystem::remove_all(path("run" + exports + "/checkpoints"));
    EXPECT_NEAR(loss(), trained, 4e-6) << exports;
  }
  const Ran without = run("evaluate runfalse same");
  EXPECT_NE(without.code, 0) << "the plugin is not there, and the model would be another";
  expect_says(without.output, {"adapter", "--plugin-path"});
}

// Of a plugin that is a mistaken one of the suite of models.
TEST_F(FrozenModel, a_parameter_of_the_model_without_a_rule_is_found_before_the_run) {
  const std::string model = R"( --set 'model={"type": "mistaken", "params": {"mistake": "forgets_a_rule"}}')";
  const std::string here = std::string(" --plugin-path ") + DRIVETRAIN_MISTAKEN_DIR;
  const Ran checked = run("config check tiny.json" + model + here);
  EXPECT_EQ(checked.code, 3) << checked.output;
  expect_says(checked.output,
              {"model/mistaken", "no rule for 1 of its own 4 parameters (second.weight)", "save_final"});
  EXPECT_EQ(run("config check tiny.json --set save_final=false" + model + here).code, 0);
}

}  // namespace
}  // namespace drivetrain::test
