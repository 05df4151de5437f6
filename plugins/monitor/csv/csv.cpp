// DeepSpeed's csv_monitor: output_path/job_name/Train_Samples_lr.csv and so on, each line the number of samples so far
// and the figure. Unlike there, a run that goes on from a checkpoint adds no second header, and the lines of steps that
// it will do again go.
//
// Source: DeepSpeed monitor/csv_monitor.py.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#include <drivetrain/plan_context.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/monitor/scalars.h>

namespace {

using namespace drivetrain;

constexpr const char* kPlugin = "monitor/csv";

class Csv : public Monitor {
 public:
  using Options = ScalarOptions;
  static OptionTable options() { return scalar_options_table(); }
  Csv(const Options& options, const Services&) : options_(options) {}

  void plan(PlanContext& ctx) override { samples_per_step_ = ctx.run().train_batch_size.value_or(1); }

  void on_event(const Event& event) override {
    if (event.type == "run_begin") begin(event.data);
    if (event.type == "step") write(event);
    if (event.type == "run_end") files_.clear();
  }

 private:
  void begin(const Value& facts) {
    files_.clear();
    folder_ = scalar_folder(options_, facts, kPlugin);
    const Value* const first = facts.find("first_step");
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      if (entry.path().extension() == ".csv") drop_from(entry.path(), first ? first->as_int() : 1);
  }

  // Lines ascend, so all from the first of this step on belong to steps that will be done again.
  void drop_from(const std::filesystem::path& path, int64_t first_step) const {
    std::ifstream lines(path);
    std::string kept, line;
    while (std::getline(lines, line) && !lines.eof()) {  // a last line that was cut short goes too
      const int64_t samples = std::strtoll(line.c_str(), nullptr, 10);
      if (samples > (first_step - 1) * samples_per_step_) break;
      kept += line + "\n";
    }
    lines.close();
    std::error_code why;
    std::filesystem::resize_file(path, kept.size(), why);
    if (why)
      throw fail(ErrorCode::io, kPlugin, ": cannot cut ", path.string(), " at step ", first_step, ": ", why.message());
  }

  void write(const Event& event) {
    if (folder_.empty()) throw fail(ErrorCode::internal, kPlugin, ": step ", event.step, " outside of a run");
    for (const Scalar& scalar : scalars_of(event)) {
      std::ofstream& file = file_of(scalar.name);
      file << event.step * samples_per_step_ << ',' << Value(scalar.value).to_json() << '\n' << std::flush;
      if (!file)
        throw fail(ErrorCode::io, kPlugin, ": cannot write step ", event.step, " to ", path_of(scalar.name), ": ",
                   std::strerror(errno), "\n   free some space or choose another output_path");
    }
  }

  std::string path_of(std::string name) const {
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '/' || c == ' '; }, '_');
    return folder_ + "/" + name + ".csv";
  }

  // With a header where the file is new.
  std::ofstream& file_of(const std::string& name) {
    std::unique_ptr<std::ofstream>& file = files_[name];
    if (file) return *file;
    file = std::make_unique<std::ofstream>(path_of(name), std::ios::app | std::ios::ate);
    if (*file && file->tellp() == 0) *file << "step," << name.substr(name.rfind('/') + 1) << '\n';
    return *file;
  }

  const Options options_;
  int64_t samples_per_step_ = 1;
  std::string folder_;
  std::map<std::string, std::unique_ptr<std::ofstream>> files_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "csv", Csv)
