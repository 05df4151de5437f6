// Writes the loss of every step, numbered, into losses.txt. An option asks for a mistake, which the suite of monitors
// has to find.
#include <drivetrain/error.h>
#include <drivetrain/monitor.h>
#include <drivetrain/services.h>

#include <filesystem>
#include <fstream>

namespace {

using namespace drivetrain;

class Mistaken : public Monitor {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "knows_one_reason", "wants_every_figure", "refuses_other_events",
                 "writes_when_it_is_destroyed", "forgets_its_count", "begins_anew", "hides_a_full_disk",
                 "names_no_file", "empties_the_figures"});
  }
  Mistaken(const Options& options, const Services&) : options_(options) {}
  ~Mistaken() override {
    if (is("writes_when_it_is_destroyed") && file_.is_open()) file_ << "the end\n";
  }

  void on_event(const Event& event) override {
    if (event.type == "run_begin")
      begin(event.data);
    else if (event.type == "step")
      step(event.data);
    else if (event.type == "run_end")
      end(event.data.find("reason")->as_string());
    else if (is("refuses_other_events"))
      throw fail(ErrorCode::internal, "what is ", event.type, "?");
  }

  void state(StateVisitor& visitor) override {
    if (!is("forgets_its_count")) visitor.integer("count", count_);
  }

 private:
  bool is(const char* mistake) const { return options_.mistake == mistake; }

  void begin(const Value& facts) {
    folder_ = facts.find("output_dir")->as_string(), path_ = folder_ + "/losses.txt";
    if (is("begins_anew")) count_ = 0;
    std::vector<std::string> kept;  // lines of the steps that are not done again
    {
      std::ifstream before(path_);
      for (std::string line; static_cast<int64_t>(kept.size()) < count_ && std::getline(before, line);)
        kept.push_back(line);
    }
    file_.open(path_, std::ios::trunc);
    for (const std::string& line : kept) file_ << line << "\n";
    check();
  }

  void step(const Value& data) {
    const Value* const loss = data.find("loss");
    if (is("wants_every_figure") && !(loss && loss->is_number())) throw fail(ErrorCode::internal, "no loss");
    file_ << ++count_ << " " << (loss && loss->is_number() ? loss->to_json() : "") << std::endl;
    check();
  }

  void end(const std::string& reason) {
    if (is("knows_one_reason") && reason != "done") throw fail(ErrorCode::internal, "what is ", reason, "?");
    if (is("empties_the_figures")) std::ofstream(folder_ + "/metrics.jsonl", std::ios::trunc);
    if (is("writes_when_it_is_destroyed")) return;
    file_.close();
    check();
  }

  void check() {
    if (file_ || is("hides_a_full_disk")) return;
    throw fail(ErrorCode::io, is("names_no_file") ? std::string("a file") : path_, " cannot be written");
  }

  const Options options_;
  std::string folder_, path_;
  std::ofstream file_;
  int64_t count_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Monitor, "mistaken", Mistaken)
