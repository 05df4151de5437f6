// Ledgers as the runner writes them, of runs that never ran: their figures follow from cell, repeat and seed.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "study/cell_plan.h"
#include "study/ledger.h"
#include "study/past_runs.h"

namespace drivetrain::study {

class PlantedLedgers : public testing::Test {
 protected:
  PlantedLedgers() {
    char name[] = "/tmp/drivetrain-ledger-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~PlantedLedgers() override { std::filesystem::remove_all(root_); }
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
  struct Planted {
    int seed = 1;      // of the first repeat
    double shift = 0;  // of the loss; not a number: the run's loss is not finite
    int steps = 4;
  };
  // Also of a later start, after which a line that was cut is followed by what tells that it was.
  static void add_runs(Ledger& ledger, const std::vector<std::string>& cells, int from, int to, int seed = 1) {
    add_planted(ledger, cells, from, to, {.seed = seed});
  }
  static void add_planted(Ledger& ledger, const std::vector<std::string>& cells, int from, int to, const Planted& run) {
    for (int block = from; block < to; ++block)
      for (const std::string& id : cells) {
        const std::string level = id == "A-A" ? "1" : id.substr(3);
        const double at = std::stod(level), own = 0.01 * ((block * 7 + run.seed * 3 + static_cast<int>(at) * 5) % 11);
        Value start = Value::object(), steps = Value::array(), tokens = Value::array();
        start.set("event", "start"), start.set("cell", id), start.set("block", block);
        start.set("run", run_id_of("config" + level, id, 1, block, "b")), start.set("time", "2026-11-28T10:00:00Z");
        ledger.add(start);
        Value end = start;
        for (int i = 0; i < run.steps; ++i) steps.items().push_back(0.1 * at + own), tokens.items().push_back(16);
        end.set("event", "end"), end.set("state", "ok"), end.set("wall_s", 1), end.set("seed", run.seed + block);
        end.set("step_s", steps), end.set("tokens", tokens);
        const double last = 3 - 0.2 * at + own + run.shift;
        Value figures = Value::object(), loss = Value::object(), when = Value::array(), values = Value::array();
        when.items().push_back(run.steps / 2), when.items().push_back(run.steps);
        values.items().push_back(std::isfinite(last) ? Value(last + 1) : Value());
        values.items().push_back(std::isfinite(last) ? Value(last) : Value());
        loss.set("step", when), loss.set("value", values), figures.set("valid_loss", loss);
        end.set("figures", figures);
        ledger.add(end);
      }
  }

 private:
  std::string root_;
};

}  // namespace drivetrain::study
