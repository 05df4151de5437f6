#include <drivetrain/testkit/kit/stop.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {

// One checkpoint, after step 4 of 6.
Value stopped_config(const Value& sections, const std::string& folder) {
  Value config = parse_json(R"({"train_steps": 6, "seed": 5, "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 37,
              "max_position_embeddings": 8}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 8}},
    "communicator": {"type": "local", "params": {"share": false}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}},
    "checkpoint_policy": {"type": "every", "params": {"steps": 4, "at_end": false}}})",
                            "suite");
  for (const Value::Member& m : sections.members()) config.set(m.key, m.value);
  config.set("output_dir", folder);
  return config;
}

// Per step what does not depend on the machine, and the bytes of every file of the final folder by its name there: a
// run whose strategies keep the model's own weights out of it (Strategy::exports_model) writes folders of theirs.
struct Ended {
  std::vector<std::string> figures;
  std::map<std::string, std::string> files;
};

std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  std::error_code failed;  // a run without the folder has no files in it
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, failed)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().lexically_relative(folder)].assign(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

void expect_same_files(const Ended& found, const Ended& wanted, const char* when) {
  EXPECT_FALSE(wanted.files.empty()) << "the run writes no weights at its end";
  for (const auto& [name, bytes] : wanted.files)
    EXPECT_TRUE(found.files.contains(name) && found.files.at(name) == bytes)
        << "the final weights differ " << when << ", in " << name;
  EXPECT_EQ(found.files.size(), wanted.files.size()) << "files of the final weights " << when;
}

Ended train_to_the_end(const Value& config, int ranks, const TrainFunction& train) {
  const TrainedRun run = train(config, ranks);
  Ended ended;
  for (const Value& line : run.metrics) {
    std::string text;
    for (const char* name : {"step", "loss", "grad_norm", "lr", "tokens", "loss_scale", "skipped"})
      if (const Value* figure = line.find(name)) text += concat(name, " ", figure->to_json(), "  ");
    ended.figures.push_back(text);
  }
  ended.files = files_of(run.final_folder());
  std::filesystem::remove_all(run.final_folder());
  return ended;
}

}  // namespace

void expect_same_bits_after_a_stop(const Value& sections, int ranks, const TrainFunction& train) {
  SCOPED_TRACE(sections.to_json());
  const TempFolder folder;
  const Value config = stopped_config(sections, folder.path("run"));
  const Ended whole = train_to_the_end(config, ranks, train), rest = train_to_the_end(config, ranks, train);
  ASSERT_EQ(whole.figures.size(), 6u);
  ASSERT_EQ(rest.figures.size(), 6u) << "the run did not go on";
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(rest.figures[i], whole.figures[i]) << "after a stop";
  expect_same_files(rest, whole, "after a stop");
}

void expect_same_bits_twice(const Value& sections, int ranks, const TrainFunction& train) {
  SCOPED_TRACE(sections.to_json());
  const TempFolder folder;
  std::vector<Ended> runs;
  for (const char* name : {"one", "two"}) {
    Value config = stopped_config(sections, folder.path(name));
    config.set("checkpoint_policy", false);
    runs.push_back(train_to_the_end(config, ranks, train));
  }
  EXPECT_EQ(runs[0].figures.size(), 6u);
  EXPECT_EQ(runs[1].figures, runs[0].figures) << "in a second run";
  expect_same_files(runs[1], runs[0], "in a second run");
}

SuiteCase state_survives_a_stop(int ranks, bool sized) {
  return {"state_survives_a_stop", [=](const Subject& subject) {
            const int64_t multiple = subject.rank_multiple;
            const int64_t n = ranks % multiple == 0 ? ranks : multiple;
            Value options = subject.options;
            if (sized) options.set("size", n);
            const Value section = Value::Object{{"type", subject.name}, {"params", options}};
            expect_same_bits_after_a_stop(Value::Object{{subject.kind, section}}, static_cast<int>(n), subject.train);
          }};
}

}  // namespace drivetrain::test
