// Figures of every step as a table, figures.csv in the run folder.
#include <drivetrain/error.h>
#include <drivetrain/monitor.h>
#include <drivetrain/services.h>

#include <cstdlib>
#include <fstream>

namespace {

using namespace drivetrain;

class NewPlugin : public Monitor {
 public:
  struct Options {
    std::vector<std::string> figures = {"loss", "grad_norm", "lr"};
    int64_t every = 1;
  };
  static OptionTable options() {
    return table<Options>()
        .field("figures", &Options::figures, "columns, by their names in metrics.jsonl")
        .field("every", &Options::every, "a row after every so many steps")
        .at_least(1);
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  // Called on one thread, event by event. Values are numbers of the host; a figure may be absent or null.
  void on_event(const Event& event) override {
    if (event.type == "run_begin") open(event.data);
    if (event.type == "step" && event.step % options_.every == 0) write_row(event);
    if (event.type == "run_end") close();
  }

 private:
  // A run that goes on from a checkpoint keeps the rows of the steps that it does not do again.
  void open(const Value& facts) {
    path_ = facts.find("output_dir")->as_string() + "/figures.csv";
    const Value* const first = facts.find("first_step");
    std::string kept, line;
    for (std::ifstream before(path_); std::getline(before, line);)
      if (const int64_t step = std::atoll(line.c_str()); step > 0 && step < (first ? first->as_int() : 1))
        kept += line + "\n";
    file_.open(path_, std::ios::trunc);
    file_ << "step";
    for (const std::string& name : options_.figures) file_ << ',' << name;
    file_ << "\n" << kept << std::flush;
    check();
  }

  // To the disk with every row: a run that is killed keeps what it wrote.
  void write_row(const Event& event) {
    file_ << event.step;
    for (const std::string& name : options_.figures) {
      const Value* const figure = event.data.find(name);
      file_ << ',' << (figure && figure->is_number() ? figure->to_json() : "");
    }
    file_ << std::endl;
    check();
  }

  void close() {
    file_.close();
    check();
  }

  void check() const {
    if (!file_) throw fail(ErrorCode::io, "monitor/new_plugin: cannot write ", path_, "; is the disk full?");
  }

  const Options options_;
  std::string path_;
  std::ofstream file_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "new_plugin", NewPlugin)
