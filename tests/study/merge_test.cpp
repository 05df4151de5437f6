// A study that was stopped, grew and was merged with one from another folder says what one says that ran in one go.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include <drivetrain/error.h>

#include "planted_ledger.h"
#include "study/merge.h"
#include "study/past_runs.h"
#include "study/records.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

class Folders : public PlantedLedgers {
 protected:
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

TEST_F(Folders, losses_that_one_of_them_does_not_compare_are_not_compared) {
  for (const auto& [name, gate] : {std::pair("a", 0.001), std::pair("b", 0.0)}) {
    Ledger ledger(folder(name));
    Value begin = head("study", 1);
    begin.set("gate", gate);
    ledger.add(begin), ledger.add(cell(name == std::string("a") ? "1" : "2"));
    add_runs(ledger, {name == std::string("a") ? "lr=1" : "lr=2"}, 0, 1);
  }
  merge_studies({folder("a"), folder("b"), folder("c")});
  EXPECT_EQ(records_of(read_ledger(folder("c")), folder("c")).gate, 0);
}

// A study with itself, with a copy of it, or with one that grew from a copy.
TEST_F(Folders, a_run_that_is_in_both_is_refused) {
  for (const char* name : {"a", "b"}) {
    Ledger ledger(folder(name));
    ledger.add(head("study", 2)), ledger.add(cell("1")), ledger.add(cell("2"));
    ledger.add(parse_json(R"({"event": "start", "run": "x", "cell": "lr=1", "block": 0, "time": "2026-11-28T10:00:00Z",
                              "folder": "/there/runs/lr=1/1"})",
                          "start"));
    add_runs(ledger, {"lr=1", "lr=2"}, 0, 2);
  }
  expect_refused("the run in /there/runs/lr=1/1 is in");
}

// One study stops two cells, and the other one has more repeats of the first of them and a stopped cell of its own.
TEST_F(Folders, cells_that_ended_early_stay_so_with_the_repeats_of_both) {
  const auto stop = [](const std::string& cell, int repeats) {
    Value line =
        parse_json(R"({"event": "stopped", "rival": "lr=1", "pairs": 3, "change": 0.5, "p": 0.001, "level": 0.01,
      "ratio": true, "time": "2026-11-28T10:00:00Z"})",
                   "stopped");
    line.set("cell", cell), line.set("repeats", repeats);
    return line;
  };
  Value stopping = head("study", 5);
  stopping.set("stop_level", 0.05);
  {
    Ledger ledger(folder("a"));
    ledger.add(stopping);
    for (const char* level : {"1", "2", "4"}) ledger.add(cell(level));
    add_runs(ledger, {"lr=1"}, 0, 5), add_runs(ledger, {"lr=2", "lr=4"}, 0, 3);
    ledger.add(stop("lr=2", 3)), ledger.add(stop("lr=4", 3));
  }
  {
    Ledger ledger(folder("b"));
    ledger.add(stopping);
    for (const char* level : {"1", "2", "8"}) ledger.add(cell(level));
    add_runs(ledger, {"lr=1", "lr=2"}, 0, 5, 100), add_runs(ledger, {"lr=8"}, 0, 4, 100);
    ledger.add(stop("lr=8", 4));
  }
  merge_studies({folder("a"), folder("b"), folder("c")});
  const std::vector<Value> lines = read_ledger(folder("c"));
  EXPECT_EQ(stopped_cells(lines), (std::set<std::string>{"lr=2", "lr=4", "lr=8"})) << "none of them runs again";
  const StudyRecord study = records_of(lines, folder("c"));
  EXPECT_DOUBLE_EQ(study.stop_level, 0.1) << "both could have stopped the best cell";
  std::vector<int64_t> repeats, looked;
  for (const CellRecord& one : study.cells)
    repeats.push_back(one.stopped.repeats), looked.push_back(one.stopped.looked_at);
  EXPECT_EQ(repeats, (std::vector<int64_t>{0, 8, 3, 4}));
  EXPECT_EQ(looked, (std::vector<int64_t>{0, 3, 0, 0})) << "the others have what they had";
  const std::string said = markdown_text(study, analysis_of(study));
  for (const char* part :
       {"Stopped early: lr 2 after 3 repeats of one of the merged studies (it has 8)",
        "Stopped early: lr 4 after 3 repeats: it", "Stopped early: lr 8 after 4 repeats: it",
        "4 cells, 3 of them stopped early, 10 repeats each; 25 of 25 runs have ended", "10 % over all"})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
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
