// What has to stay the same from run to run: bits, initial weights, and everything but the library when one plugin is
// changed for another.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class Repeat : public ProgramTest {
 protected:
  // Dropout off, real text of 256 tokens, clipping active.
  Repeat() {
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (int j = 0; j < 40; ++j) text += concat("line ", (i * 37 + j * 11) % 101, " of file ", i, "\n");
      write(concat("texts/", i, ".txt"), text);
    }
    tiny_with(R"("dataset": {"type": "synthetic", "params": {"seq_length": 8}})",
              R"("dataset": {"type": "text", "params": {"seq_length": 16, "files": ["texts"]}})");
  }
  Ran launch_into(const std::string& run_folder, int ranks, const std::string& arguments = "") const {
    const Ran ran = launch(ranks, "--set model.vocab_size=256 --set output_dir=" + run_folder + " " + arguments);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran;
  }
};

TEST_F(Repeat, the_same_run_twice_gives_the_same_bits) {
  for (const int ranks : {1, 2}) {
    const std::string a = concat("a", ranks), b = concat("b", ranks);
    launch_into(a, ranks), launch_into(b, ranks);
    EXPECT_EQ(curve(a).size(), 5u);
    EXPECT_EQ(curve(a), curve(b));
    EXPECT_EQ(final_weights(a), final_weights(b));
  }
}

// Products, loops over rows and elements, sums and random numbers are all large enough to be cut among threads.
TEST_F(Repeat, one_two_and_three_threads_give_the_same_bits) {
  std::vector<int> numbers = {1, 2, 3};
#ifdef __x86_64__
  // MKL keeps its promise of bits (MKL_CBWR) on Intel's processors, and was seen to on AMD's with AVX-512. On others it
  // has been seen to cut sums among three threads.
  if (!__builtin_cpu_is("intel") && !__builtin_cpu_supports("avx512f")) numbers = {1, 2};
#endif
  for (const std::string precision : {"", " --set bf16.enabled=true"})
    for (const std::string attention : {"flash", "standard"}) {
      SCOPED_TRACE(attention + precision);
#ifdef __x86_64__
      // oneDNN's 16-bit products cut their sums among threads there (tests/README, "The same bits").
      const bool by_onednn = attention != "flash" || !__builtin_cpu_supports("avx512bf16");
      if (!precision.empty() && __builtin_cpu_is("intel") && by_onednn) continue;
#endif
      std::set<std::string> weights;
      std::set<std::vector<std::string>> curves;
      for (const int threads : numbers) {
        std::filesystem::remove_all(path("run"));
        const Ran ran = train(concat("--set threads=", threads, " --set attention=", attention, precision,
                                     " --set dataset=synthetic",
                                     " --set dataset.params.seq_length=128 --set model.params.hidden_size=256 --set "
                                     "model.params.vocab_size=4096",
                                     " --set model.params.max_position_embeddings=128 --set "
                                     "model.params.hidden_dropout=0.1 --set train_steps=3"));
        ASSERT_EQ(ran.code, 0) << ran.output;
        weights.insert(final_weights("run")), curves.insert(curve("run"));
      }
      EXPECT_EQ(weights.size(), 1u);
      EXPECT_EQ(curves.size(), 1u);
    }
}

TEST_F(Repeat, resolved_json_runs_again_to_the_same_bits) {
  launch_into("a", 2);
  const Ran again = run("launch -n 2 " + path("a/resolved.json") + " --set output_dir=b");
  ASSERT_EQ(again.code, 0) << again.output;
  EXPECT_EQ(again.output.find("warning"), std::string::npos) << again.output;
  EXPECT_EQ(curve("a"), curve("b"));
  EXPECT_EQ(final_weights("a"), final_weights("b"));
  EXPECT_EQ(run("train " + path("a/resolved.json")).code, 2) << "output_dir is that of the first run";
}

TEST_F(Repeat, resolved_json_on_another_number_of_ranks_says_what_differs) {
  launch_into("a", 1);
  const Ran again =
      run("launch -n 2 " + path("a/resolved.json") + " --set output_dir=b --set train_micro_batch_size_per_gpu=2");
  EXPECT_EQ(again.code, 0) << again.output;
  expect_says(again.output, {"not as in the run this config is from", "world_size: 1 then, 2 now"});
}

TEST_F(Repeat, one_two_and_four_ranks_start_from_the_same_weights) {
  for (const int ranks : {1, 2, 4})
    launch_into(concat("run", ranks), ranks, "--set optimizer.lr=0 --set train_steps=1 --set optimizer.weight_decay=0");
  EXPECT_EQ(final_weights("run1"), final_weights("run2"));
  EXPECT_EQ(final_weights("run1"), final_weights("run4"));
}

TEST_F(Repeat, another_attention_changes_the_loaded_library_and_nothing_else) {
  launch_into("flash", 1, "--set attention=flash");
  launch_into("standard", 1, "--set attention=standard");
  Value flash = read_json_file(path("flash/resolved.json")), standard = read_json_file(path("standard/resolved.json"));
  Value* facts[2] = {&flash, &standard};
  const char* names[2] = {"flash", "standard"};
  for (int i = 0; i < 2; ++i) {
    Value resolved = *facts[i]->find("_resolved"), plugins = *resolved.find("plugins");
    const std::string id = std::string("attention/") + names[i];
    ASSERT_TRUE(plugins.find(id)) << id;
    EXPECT_NE(plugins.find(id)->find("file")->as_string().find(concat("attention_", names[i], ".so")),
              std::string::npos);
    EXPECT_EQ(plugins.find(std::string("attention/") + names[1 - i]), nullptr);
    EXPECT_EQ(facts[i]->find("attention")->find("type")->as_string(), names[i]);
    plugins.erase(id);
    resolved.set("plugins", plugins);
    facts[i]->set("_resolved", resolved);
    for (const char* key : {"attention", "output_dir", "_run_id"}) facts[i]->erase(key);
  }
  EXPECT_EQ(flash.to_json(2), standard.to_json(2));
}

}  // namespace
}  // namespace drivetrain::test
