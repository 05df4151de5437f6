// The runtime's own keys, the rule of the three batch sizes, and --set.
#include "config/run_settings.h"
#include "config_files/load.h"
#include "config_test_support.h"

namespace drivetrain {
namespace {

RunSettings settings_of(const std::string& text, Problems& problems) {
  return read_run_settings(parse_json(text, "a.json"), "configs/tiny.json", problems);
}

struct Solved {
  BatchSizes sizes;
  std::string problems;
};

Solved solve(const std::string& text, int64_t ranks) {
  Problems problems;
  RunSettings settings = settings_of("{\"train_steps\": 1, " + text + "}", problems);
  EXPECT_TRUE(problems.empty()) << problems.text();
  const BatchSizes sizes = solve_batch(settings, ranks, problems);
  return {sizes, problems.text()};
}

const std::string T = "\"train_batch_size\": ", M = "\"train_micro_batch_size_per_gpu\": ",
                  G = "\"gradient_accumulation_steps\": ";

void expect_sizes(const std::string& text, int64_t ranks, int64_t total, int64_t micro, int64_t accumulation) {
  const Solved s = solve(text, ranks);
  EXPECT_EQ(s.problems, "") << text;
  EXPECT_EQ(s.sizes.train_batch_size, total) << text;
  EXPECT_EQ(s.sizes.micro_batch_size, micro) << text;
  EXPECT_EQ(s.sizes.accumulation, accumulation) << text;
}

TEST(Batch, Any_two_sizes_give_the_third) {
  expect_sizes(T + "64, " + M + "4", 2, 64, 4, 8);
  expect_sizes(T + "64, " + G + "8", 2, 64, 4, 8);
  expect_sizes(M + "4, " + G + "8", 2, 64, 4, 8);
  expect_sizes(T + "64, " + M + "4, " + G + "8", 2, 64, 4, 8);
  expect_sizes(T + "64", 2, 64, 32, 1);
  expect_sizes(M + "4", 2, 8, 4, 1);
}

TEST(Batch, Every_legal_triple_is_found_from_any_two_of_it) {
  for (int64_t w = 1; w <= 5; ++w) {
    for (int64_t m = 1; m <= 6; ++m) {
      for (int64_t g = 1; g <= 6; ++g) {
        expect_sizes(concat(T, m * g * w, ", ", M, m), w, m * g * w, m, g);
        expect_sizes(concat(T, m * g * w, ", ", G, g), w, m * g * w, m, g);
      }
    }
  }
}

TEST(Batch, Contradictions_say_what_was_given_and_what_would_be_legal) {
  EXPECT_EQ(solve(T + "60, " + M + "4, " + G + "8", 2).problems,
            "a.json:1:20  all three batch sizes are given and contradict each other: train_batch_size is 60, but "
            "train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 8 x 2 data-parallel ranks = 64\n"
            "   legal: train_batch_size 64; or leave one of the three out");
  EXPECT_HAS(solve(T + "32, " + M + "4, " + G + "8", 2).problems,
             "legal: train_batch_size 64; or gradient_accumulation_steps 4; or train_micro_batch_size_per_gpu 2;");
  EXPECT_EQ(
      solve(T + "60, " + M + "8", 2).problems,
      "a.json:1:20  given are train_batch_size 60 and train_micro_batch_size_per_gpu 8; gradient_accumulation_steps "
      "would be 60 / (8 x 2 data-parallel ranks), which is not a whole number\n"
      "   legal: train_batch_size 48 or 64; or train_micro_batch_size_per_gpu 2, 3, 5, 6, 10");
  EXPECT_EQ(solve(T + "7", 2).problems,
            "a.json:1:20  given are train_batch_size 7 alone (so gradient_accumulation_steps is 1); "
            "train_micro_batch_size_per_gpu would be 7 / 2 data-parallel ranks, which is not a whole number\n"
            "   legal: train_batch_size 6 or 8");
  EXPECT_HAS(solve(T + "1, " + G + "4", 1).problems, "legal: train_batch_size 4; or gradient_accumulation_steps 1");
  EXPECT_HAS(solve(G + "4", 1).problems,
             "neither train_batch_size nor train_micro_batch_size_per_gpu is given (only "
             "gradient_accumulation_steps)");
  EXPECT_HAS(solve("\"seed\": 1", 1).problems, "a.json:1:1  neither train_batch_size");
  EXPECT_HAS(solve(M + "1e12, " + G + "1e12", 8).problems, "is too large");
}

TEST(RunSettingsTest, Defaults_fill_what_the_file_leaves_out) {
  Problems problems;
  const RunSettings s = settings_of(R"({"train_steps": 5, "optimizer": {}, "_note": 1})", problems);
  EXPECT_TRUE(problems.empty()) << problems.text();
  EXPECT_EQ(s.device, "cpu");
  EXPECT_EQ(s.gradient_clipping, 1.0);
  EXPECT_EQ(s.output_dir, (std::filesystem::current_path() / "runs/tiny").string());
}

TEST(RunSettingsTest, Paths_are_absolute_input_by_the_file_output_by_the_current_folder) {
  Problems problems;
  const RunSettings s = read_run_settings(
      parse_json(R"({"train_steps": 5, "output_dir": "out", "plugins": {"paths": ["p"]}})", "/etc/x/a.json"),
      "/etc/x/a.json", problems);
  EXPECT_EQ(s.output_dir, (std::filesystem::current_path() / "out").string());
  EXPECT_EQ(s.plugins.paths, std::vector<std::string>{"/etc/x/p"});
}

TEST(RunSettingsTest, Bad_settings_are_named_all_at_once) {
  Problems problems;
  settings_of(
      "{\"device\": \"gpu\",\n\"gradient_clipping\": -1,\n\"threads\": \"many\",\n\"plugins\": {\"path\": 1, "
      "\"allow\": {\"x.so\": \"12\"}},\n"
      "\"train_batch_size\": \"8\"}",
      problems);
  EXPECT_EQ(problems.text(),
            "a.json:1:1  train_steps is missing: the run needs it (optimizer steps)\n"
            "a.json:1:12  device is \"gpu\", but the run takes \"cpu\" or \"cuda\"\n"
            "a.json:2:22  gradient_clipping is -1, but the run takes at least 0\n"
            "a.json:3:12  threads of the run: expected integer, found string \"many\"\n"
            "a.json:4:13  plugins.path is not an option of the run\n"
            "   did you mean \"paths\"?   known here: paths, allow\n"
            "a.json:4:42  plugins.allow.x.so: expected 64 hexadecimal digits (SHA-256), found string \"12\"\n"
            "a.json:5:21  train_batch_size of the run: expected integer or null, found string \"8\"\n"
            "   write 8, without quotation marks");
}

// -- --set

std::string after_set(const std::string& config, const std::vector<std::string>& sets) {
  Value value = parse_json(config, "a.json");
  Problems problems;
  for (size_t i = 0; i < sets.size(); ++i) apply_set(value, sets[i], static_cast<int>(i) + 1, problems);
  return problems.empty() ? value.to_json() : problems.text();
}

TEST(Set, Values_are_json_or_else_strings) {
  EXPECT_EQ(after_set("{}", {"a=1", "b=2.5", "c=true", "d=[1,2]", "e=some text", "f=", "g=\"1\"", "h={\"x\": null}",
                             "i=a=b"}),
            R"({"a":1,"b":2.5,"c":true,"d":[1,2],"e":"some text","f":"","g":"1","h":{"x":null},"i":"a=b"})");
}

TEST(Set, Missing_objects_are_created_and_old_values_replaced) {
  EXPECT_EQ(after_set(R"({"a": {"b": 1}, "n": null})", {"a.b=2", "a.c.d=3", "x.y=4", "n.z=5"}),
            R"({"a":{"b":2,"c":{"d":3}},"n":{"z":5},"x":{"y":4}})");
}

TEST(Set, Options_reach_params_whichever_way_the_section_is_written) {
  EXPECT_EQ(after_set(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1}}})",
                      {"optimizer.lr=2", "optimizer.params.eps=3"}),
            R"({"optimizer":{"type":"AdamW","params":{"lr":2,"eps":3}}})");
  EXPECT_EQ(after_set(R"({"optimizer": {"lr": 1}})", {"optimizer.lr=2"}), R"({"optimizer":{"lr":2}})");
  EXPECT_EQ(after_set(R"({"model": "gpt"})", {"model.num_layers=2", "model.enabled=true"}),
            R"({"model":{"type":"gpt","params":{"num_layers":2},"enabled":true}})");
  EXPECT_EQ(after_set(R"({"attention": "flash"})", {"attention=standard"}), R"({"attention":"standard"})");
  EXPECT_EQ(after_set("{}", {"optimizer.lr=0.1", "optimizer.type=sgd", "optimizer.momentum=0.9"}),
            R"({"optimizer":{"params":{"lr":0.1,"momentum":0.9},"type":"sgd"}})");
  EXPECT_EQ(after_set(R"({"z": {"type": "zz"}})", {"z.offload.device=cpu"}),
            R"({"z":{"type":"zz","params":{"offload":{"device":"cpu"}}}})");
}

TEST(Set, Mistakes_are_numbered) {
  EXPECT_EQ(after_set(R"({"seed": 3, "l": [1]})", {"seed", "a..b=1", "=1", "seed.x=1", "l.0=2", "a={\"k\":1,\"k\":2}"}),
            "--set #1  `seed` has no '='; write KEY=VALUE, for example train_steps=100\n"
            "--set #2  `a..b=1` has an empty key; write a.b.c=VALUE\n"
            "--set #3  `=1` has an empty key; write a.b.c=VALUE\n"
            "--set #4  seed (a.json:1:10) has no keys: it is integer 3\n   set it as a whole: seed=VALUE\n"
            "--set #5  l (a.json:1:18) has no keys: it is array\n   set it as a whole: l=VALUE\n"
            "--set #6  key \"k\" is given twice; the first is at --set #6\n   remove one of them");
}

std::string notes_of_sets(const std::string& config, const std::vector<std::string>& sets) {
  Value value = parse_json(config, "a.json");
  Problems problems;
  for (size_t i = 0; i < sets.size(); ++i) apply_set(value, sets[i], static_cast<int>(i) + 1, problems);
  EXPECT_EQ(problems.text(), "");
  std::string text;
  for (const Problem& note : problems.notes()) text += note.where.text() + "  " + note.message + "\n";
  return text;
}

TEST(Set, Of_two_for_one_key_the_later_one_counts_and_is_noted_with_both) {
  EXPECT_EQ(after_set(R"({"seed": 1})", {"seed=2", "seed=3"}), R"({"seed":3})");
  EXPECT_EQ(notes_of_sets(R"({"seed": 1})", {"seed=2", "seed=3"}),
            "--set #2  seed: 3 is what counts, and not 2 of --set #1\n");
  EXPECT_EQ(notes_of_sets(R"({"optimizer": "sgd"})", {"a=1", "optimizer.lr=2", "optimizer.params.lr=3"}),
            "--set #3  optimizer.params.lr: 3 is what counts, and not 2 of --set #2\n");
  EXPECT_EQ(notes_of_sets("{}", {"attention=flash", "attention.type=standard"}),
            "--set #2  attention.type: \"standard\" is what counts, and not \"flash\" of --set #1\n");
  EXPECT_EQ(notes_of_sets("{}", {"seed=2", "seed=null"}),
            "--set #2  seed: null is what counts, and not 2 of --set #1\n");
  for (const std::vector<std::string>& same :
       std::vector<std::vector<std::string>>{{"seed=2", "seed=2"},
                                             {R"(m={"a": 2})", R"(m={"a": 2, "b": 3})"},
                                             {"m.a=2", R"(m={"b": 3, "a": 2})"},
                                             {"seed=null", "seed=2"},
                                             {"m=null", "m.a=1"},
                                             {"seed=5", "seed=5e0"},
                                             {"m.l=[1, [2.0]]", "m.l=[1.0, [2]]"},
                                             {"m.a=1", R"(m={"a": 1.0})"},
                                             {"attention.type=flash", "attention=flash"},
                                             {"attention=flash", R"(attention={"type": "flash", "params": {"p": 1}})"},
                                             {"m.params.lr=1", R"(m={"lr": 1, "z": 5})"},
                                             {"m.lr=1", R"(m={"type": "t", "params": {"lr": 1}})"},
                                             {"m.a=1", "m.b=2"}})
    EXPECT_EQ(notes_of_sets(R"({"seed": 1, "m": {"z": 5}})", same), "") << same[0] << " " << same[1];
}

TEST(Set, What_was_set_in_a_section_that_is_set_as_a_whole_is_named_with_its_keys) {
  EXPECT_EQ(notes_of_sets(R"({"m": {"p": 1}})", {"m.a.b=2", R"(m={"c": 4})"}),
            "--set #2  m.a.b = 2 of --set #1 is dropped, since this one sets m as a whole\n");
  EXPECT_EQ(
      notes_of_sets("{}", {"fused_block.recompute_cheap=false", "fused_block=false"}),
      "--set #2  fused_block.recompute_cheap = false of --set #1 is dropped, since this one sets fused_block as a "
      "whole\n");
  EXPECT_EQ(notes_of_sets(R"({"optimizer": {"type": "AdamW", "params": {"lr": 3}}})",
                          {"optimizer.params.lr=1", "optimizer.eps=2", "optimizer=sgd"}),
            "--set #3  optimizer.params.lr = 1 of --set #1 is dropped, since this one sets optimizer as a whole\n"
            "--set #3  optimizer.params.eps = 2 of --set #2 is dropped, since this one sets optimizer as a whole\n");
  // One that stays with another value, in the same spelling or in another.
  EXPECT_EQ(notes_of_sets("{}", {"attention.type=flash", "attention=standard"}),
            "--set #2  attention.type: \"standard\" is what counts, and not \"flash\" of --set #1\n");
  EXPECT_EQ(notes_of_sets("{}", {"attention=flash", R"(attention={"type": "standard"})"}),
            "--set #2  attention.type: \"standard\" is what counts, and not \"flash\" of --set #1\n");
  EXPECT_EQ(notes_of_sets("{}", {"m.type=t", "m.lr=1", R"(m={"lr": 2, "type": "t"})"}),
            "--set #3  m.params.lr: 2 is what counts, and not 1 of --set #2\n");
  EXPECT_EQ(notes_of_sets("{}", {"m.a.b=2", R"(m={"a": {"b": 3}})"}),
            "--set #2  m.a.b: 3 is what counts, and not 2 of --set #1\n");
  EXPECT_EQ(notes_of_sets("{}", {"m.l=[1, 2]", "m.l=[1.0, 3]"}),
            "--set #2  m.l: [1.0,3] is what counts, and not [1,2] of --set #1\n");
}

TEST(Set, Later_errors_name_the_argument) {
  Value value = parse_json(R"({"train_steps": 1})", "a.json");
  Problems problems;
  apply_set(value, "seed=two", 1, problems);
  apply_set(value, "threads=-1", 2, problems);
  read_run_settings(value, "a.json", problems);
  EXPECT_EQ(problems.text(),
            "--set #1  seed of the run: expected integer, found string \"two\"\n"
            "--set #2  threads is -1, but the run takes 0 to 1024");
}

TEST(Set, Null_gives_the_default) {
  Value value = parse_json(R"({"train_steps": 1, "seed": 7, "threads": 3, "output_dir": "there"})", "a.json");
  Problems problems;
  for (const char* set : {"seed=null", "threads=null", "output_dir=null"}) apply_set(value, set, 1, problems);
  const RunSettings settings = read_run_settings(value, "configs/tiny.json", problems);
  EXPECT_EQ(problems.text(), "");
  EXPECT_EQ(settings.seed, RunSettings().seed);
  EXPECT_EQ(settings.threads, RunSettings().threads);
  EXPECT_TRUE(settings.output_dir.ends_with("runs/tiny")) << settings.output_dir;
}

TEST(Set, Null_is_neither_a_required_value_nor_one_of_an_unknown_key) {
  Value value = parse_json(R"({"train_steps": 1, "seed": null})", "a.json");
  Problems problems;
  apply_set(value, "train_steps=null", 1, problems);
  apply_set(value, "plugins.path=null", 2, problems);
  read_run_settings(value, "a.json", problems);
  const std::string text = problems.text();
  EXPECT_NE(text.find("train_steps is missing"), std::string::npos) << text;
  EXPECT_NE(text.find("--set #2  plugins.path is not an option"), std::string::npos) << text;
  EXPECT_NE(text.find("seed of the run: expected integer, found null"), std::string::npos) << text;
}

class LoadConfig : public ConfigFiles {};

TEST_F(LoadConfig, Reads_the_file_and_applies_set) {
  Problems problems;
  const Value v = load_config(write("a.json", "{\"a\": 1, // note\n}"), {"b=2"}, problems);
  EXPECT_EQ(v.to_json(), R"({"a":1,"b":2})");
}

TEST_F(LoadConfig, A_config_must_be_an_object) {
  Problems problems;
  const std::string path = write("a.json", "[1]");
  EXPECT_EQ(config_error_of([&] { load_config(path, {}, problems); }),
            path + ":1:1  a config is an object of settings, found array");
}

}  // namespace
}  // namespace drivetrain
