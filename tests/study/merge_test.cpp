// A study that was stopped, grew and was merged with one from another folder says what one says that ran in one go.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include <drivetrain/error.h>

#include "study/cell_plan.h"
#include "study/ledger.h"
#include "study/merge.h"
#include "study/past_runs.h"
#include "study/records.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

// A ledger as the runner writes it, of runs that never ran: their figures follow from cell, repeat and seed.
class Folders : public testing::Test {
 protected:
  Folders() {
    char name[] = "/tmp/drivetrain-merge-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Folders() override { std::filesystem::remove_all(root_); }
  std::string folder(const std::string& name) const { return root_ + "/" + name; }

  static Value head(const char* event, int repeats) {
    Value head = parse_json(R"({"name": "planted", "time": "2026-11-28T10:00:00Z", "base": "0123", "build": "b",
      "environment": {"host": "h", "build": "b"}, "warmup": {"steps": 1, "steady": false, "window": 5, "tolerance": 0.1,
      "only_first": 0, "quantile": 0.5}, "gate": 0, "trim": 0, "until": 0, "peak_tflops": 0, "aliasing": "",
      "outcome": "valid_loss", "study": {"seed": 1, "seed_per_repeat": true}})",
                            "head");
    head.set("event", event), head.set("repeats", repeats);
    return head;
  }
  static Value cell(const std::string& level, bool noise = false) {
    Value line = parse_json(R"({"event": "cell", "world_size": 1, "train_batch_size": 2, "seq_length": 8,
      "planned_bytes": 1, "model": {}, "gated": false, "recompute": {"on": false}, "refusal": "", "reproduce": ""})",
                            "cell");
    Value levels = Value::object();
    levels.set("lr", level);
    line.set("cell", noise ? "A-A" : "lr=" + level), line.set("levels", levels), line.set("config", "config" + level);
    line.set("reference", level == "1" && !noise), line.set("noise", noise);
    return line;
  }
  // Also of a later start, after which a line that was cut is followed by what tells that it was.
  static void add_runs(Ledger& ledger, const std::vector<std::string>& cells, int from, int to, int seed = 1) {
    for (int block = from; block < to; ++block)
      for (const std::string& id : cells) {
        const std::string level = id == "A-A" ? "1" : id.substr(3);
        const double at = std::stod(level), own = 0.01 * ((block * 7 + seed * 3 + static_cast<int>(at) * 5) % 11);
        Value start = Value::object(), steps = Value::array(), tokens = Value::array();
        start.set("event", "start"), start.set("cell", id), start.set("block", block);
        start.set("run", run_id_of("config" + level, id, 1, block, "b")), start.set("time", "2026-11-28T10:00:00Z");
        ledger.add(start);
        Value end = start;
        for (int i = 0; i < 4; ++i) steps.items().push_back(0.1 * at + own), tokens.items().push_back(16);
        end.set("event", "end"), end.set("state", "ok"), end.set("wall_s", 1), end.set("seed", seed + block);
        end.set("step_s", steps), end.set("tokens", tokens);
        Value figures = parse_json(R"({"valid_loss": {"step": [4], "value": [0]}})", "figures");
        const_cast<Value*>(figures.find("valid_loss")->find("value"))->items()[0] = Value(3 - 0.2 * at + own);
        end.set("figures", figures);
        ledger.add(end);
      }
  }
  static std::string report(const std::string& folder) {
    const StudyRecord study = records_of(read_ledger(folder), "");
    const Analysis analysis = analysis_of(study);
    return markdown_text(study, analysis) + csv_text(analysis) + runs_csv(study, analysis) +
           html_text(study, analysis, {}, "");
  }
  void expect_refused(const std::string& part) const {
    try {
      merge_studies({folder("a"), folder("b"), folder("c")});
      ADD_FAILURE() << "merged";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_FALSE(std::filesystem::exists(folder("c") + "/ledger.jsonl"));
    }
  }

 private:
  std::string root_;
};

TEST_F(Folders, stopped_grown_and_merged_is_as_run_in_one_go) {
  {
    Ledger whole(folder("whole"));
    whole.add(head("study", 5));
    for (const char* level : {"1", "2", "4", "8"}) whole.add(cell(level));
    whole.add(cell("1", true));
    add_runs(whole, {"lr=1", "lr=2", "lr=4", "lr=8", "A-A"}, 0, 5);
  }
  {
    Ledger first(folder("a"));
    first.add(head("study", 3)), first.add(cell("1")), first.add(cell("2")), first.add(cell("1", true));
    add_runs(first, {"lr=1", "lr=2", "A-A"}, 0, 2);
  }
  std::ofstream(folder("a") + "/ledger.jsonl", std::ios::app) << R"({"event": "end", "run": "12)";  // killed in a line
  {
    Ledger again(folder("a"));
    add_runs(again, {"lr=1", "lr=2", "A-A"}, 2, 3);
    Value grown = head("grown", 5);  // by two repeats and a level
    grown.set("cells", parse_json(R"(["lr=1", "lr=2", "lr=4", "A-A"])", ""));
    again.add(grown), again.add(cell("4"));
    add_runs(again, {"lr=4"}, 0, 3), add_runs(again, {"lr=1", "lr=2", "lr=4", "A-A"}, 3, 5);
  }
  {
    Ledger other(folder("b"));  // the last level, from another folder
    other.add(head("study", 5)), other.add(cell("1")), other.add(cell("8"));
    add_runs(other, {"lr=8"}, 0, 5);
  }
  const std::string said = merge_studies({folder("a"), folder("b"), folder("c")});
  EXPECT_NE(said.find("20 and 5 runs are one study of 5 repeats"), std::string::npos) << said;
  EXPECT_EQ(report(folder("c")), report(folder("whole")));
  EXPECT_TRUE(std::filesystem::exists(folder("c") + "/report.html"));
  try {
    merge_studies({folder("a"), folder("b"), folder("c")});
    ADD_FAILURE() << "overwritten";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("nothing is overwritten"), std::string::npos);
  }
}

TEST_F(Folders, repeats_of_both_come_one_after_the_other) {
  for (const auto& [name, seed] : {std::pair("a", 1), std::pair("b", 100)}) {
    Ledger ledger(folder(name));
    ledger.add(head("study", 2)), ledger.add(cell("1")), ledger.add(cell("2"));
    add_runs(ledger, {"lr=1", "lr=2"}, 0, 2, seed);
  }
  merge_studies({folder("a"), folder("b"), folder("c")});
  const StudyRecord study = records_of(read_ledger(folder("c")), folder("c"));
  ASSERT_EQ(study.cells.size(), 2u);
  std::vector<int64_t> blocks, seeds;
  for (const RunRecord& run : study.cells[0].runs) blocks.push_back(run.block), seeds.push_back(*run.seed);
  EXPECT_EQ(blocks, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(seeds, (std::vector<int64_t>{1, 2, 100, 101}));
  EXPECT_EQ(study.repeats, 4);
  std::set<std::string> ids;
  for (const CellRecord& cell : study.cells)
    for (const RunRecord& run : cell.runs) ids.insert(run.id);
  EXPECT_EQ(ids.size(), 8u) << "each run is known by its place in the study that both became";
  EXPECT_EQ(ended_runs(read_ledger(folder("c"))).size(), 8u);
}

TEST_F(Folders, what_is_no_part_of_one_study_is_refused_with_what_differs) {
  const auto second = [&](const std::function<void(Value&)>& change, const std::string& level, int seed) {
    std::filesystem::remove_all(folder("b"));
    Ledger ledger(folder("b"));
    Value other = head("study", 2);
    change(other);
    ledger.add(other);
    Value first = cell("1");
    if (level != "1") first.set("config", level);
    ledger.add(first);
    add_runs(ledger, {"lr=1"}, 0, 2, seed);
  };
  {
    Ledger ledger(folder("a"));
    ledger.add(head("study", 2)), ledger.add(cell("1"));
    add_runs(ledger, {"lr=1"}, 0, 2);
  }
  second([](Value& head) { head.set("environment", parse_json(R"({"host": "h", "build": "c"})", "")); }, "1", 100);
  expect_refused("build: \"b\" in the first, \"c\" in the second");
  second([](Value& head) { head.set("base", "4567"); }, "1", 100);
  expect_refused("base: the file's content is another one");
  second([](Value&) {}, "another config", 100);
  expect_refused("cell lr=1: its config is another one");
  second([](Value&) {}, "1", 2);
  expect_refused("with the seed 2");
}

TEST_F(Folders, a_study_grows_by_repeats_and_levels_and_by_nothing_that_ran) {
  const Value before = head("study", 3);
  Value now = head("study", 5);
  EXPECT_NO_THROW(check_grown(before, now, "study.json"));
  const auto refused = [&](const Value& other, const std::string& part) {
    try {
      check_grown(before, other, "study.json");
      ADD_FAILURE() << "accepted: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused(head("study", 2), "repeats: 3 when it began, 2 now");
  now.set("base", "4567");
  refused(now, "base: the file's content is another one");
  now = head("study", 5), now.set("study", parse_json(R"({"seed": 2, "seed_per_repeat": true})", ""));
  refused(now, "seed: 1 when it began, 2 now");
  now = head("study", 5), now.set("environment", parse_json(R"({"host": "h", "build": "c"})", ""));
  refused(now, "environment.build: \"b\" when it began, \"c\" now");

  const auto planned = [](const std::vector<std::string>& levels, const std::string& config) {
    std::pair<std::vector<Cell>, std::vector<CellPlan>> all;
    for (const std::string& level : levels) {
      Cell cell;
      cell.id = "lr=" + level, cell.is_reference = level == "1";
      all.first.push_back(cell), all.second.emplace_back(), all.second.back().config = config + level;
    }
    return all;
  };
  const std::vector<Value> lines = {before, cell("1"), cell("2")};
  const auto [more, more_plans] = planned({"1", "4", "2"}, "config");
  EXPECT_NO_THROW(check_known_cells(lines, more, more_plans, "study.json"));
  const auto cells_refused = [&](const auto& all, const std::string& part) {
    try {
      check_known_cells(lines, all.first, all.second, "study.json");
      ADD_FAILURE() << "accepted: " << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  cells_refused(planned({"1", "4"}, "config"), "cell lr=2 is not in the study any more");
  cells_refused(planned({"1", "2"}, "other"), "cell lr=1: ");
}

}  // namespace
}  // namespace drivetrain::study
