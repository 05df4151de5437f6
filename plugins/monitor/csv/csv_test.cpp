// monitor/csv: DeepSpeed's files and first lines; a run that goes on; errors that name the file.
#include <gtest/gtest.h>

#include <drivetrain/monitor.h>
#include <drivetrain/plan_record.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct CsvMonitor : ::testing::Test {
  Host host;
  TempFolder folder;

  // A run over steps [first, last] whose loss is 10 * `first` + step.
  void run(int64_t first, int64_t last, const std::string& options = "{}") {
    const auto monitor = make_plugin<Monitor>(host, "csv", options);
    ModelFacts model;
    RunFacts facts;
    facts.train_batch_size = 8;
    PlanRecord plan(model, facts);
    monitor->plan(plan);
    Value begin, data;
    begin.set("output_dir", folder.path()), begin.set("first_step", first);
    monitor->on_event({"run_begin", 0, begin});
    for (int64_t n = first; n <= last; ++n) {
      data.set("step", n), data.set("loss", 10.0 * static_cast<double>(first) + static_cast<double>(n));
      data.set("lr", 0.25), data.set("flops_formula", "text"), data.set("grad_norm", Value());
      monitor->on_event({"step", n, data});
    }
    monitor->on_event({"run_end", last, {}});
  }
};

TEST_F(CsvMonitor, writes_a_file_per_figure_over_samples_with_DeepSpeeds_names) {
  run(1, 2);
  EXPECT_EQ(folder.text("DeepSpeedJobName/Train_Samples_train_loss.csv"), "step,train_loss\n8,11.0\n16,12.0\n");
  EXPECT_EQ(folder.text("DeepSpeedJobName/Train_Samples_lr.csv"), "step,lr\n8,0.25\n16,0.25\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "DeepSpeedJobName"), {}), 2);
}

TEST_F(CsvMonitor, a_run_that_goes_on_replaces_the_lines_of_the_steps_that_it_does_again) {
  run(1, 3);
  run(3, 4);
  EXPECT_EQ(folder.text("DeepSpeedJobName/Train_Samples_train_loss.csv"),
            "step,train_loss\n8,11.0\n16,12.0\n24,33.0\n32,34.0\n");
}

TEST_F(CsvMonitor, the_folder_is_the_files) {
  run(1, 1, concat(R"({"output_path": ")", folder / "logs", R"(", "job_name": "mine"})"));
  EXPECT_EQ(folder.text("logs/mine/Train_Samples_train_loss.csv"), "step,train_loss\n8,11.0\n");
  EXPECT_THROW(run(1, 1, R"({"job_name": "../x"})"), Error);
}

TEST_F(CsvMonitor, a_folder_that_cannot_be_made_is_named_with_the_key) {
  std::ofstream(folder / "file") << "x";
  try {
    run(1, 1, concat(R"({"output_path": ")", folder / "file", R"("})"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find(folder / "file/DeepSpeedJobName"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("output_path"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace drivetrain
