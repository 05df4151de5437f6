#include "matrix/run_all.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

#include <drivetrain/error.h>

#include "matrix/cells.h"
#include "matrix/curve.h"

namespace drivetrain::test {
namespace {

struct Options {
  size_t jobs = 1, every = 1;
  std::string table, log, only, models = "turns";
};

size_t count_of(const std::string& key, const std::string& value) {
  size_t used = 0;
  long count = 0;
  try {
    count = std::stol(value, &used);
  } catch (const std::exception&) {
  }
  if (count < 1 || used != value.size())
    throw std::runtime_error(concat(key, " wants a whole number from 1 on; found ", value));
  return static_cast<size_t>(count);
}

Options parse(const std::vector<std::string>& arguments) {
  Options o;
  for (size_t i = 0; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) throw std::runtime_error(arguments[i] + " wants a value");
    const std::string &key = arguments[i], &value = arguments[i + 1];
    if (key == "--jobs")
      o.jobs = count_of(key, value);
    else if (key == "--every")
      o.every = count_of(key, value);
    else if (key == "--table")
      o.table = value;
    else if (key == "--log")
      o.log = value;
    else if (key == "--only")
      o.only = value;
    else if (key == "--models" && (value == "turns" || value == "both"))
      o.models = value;
    else
      throw std::runtime_error(concat(key, " ", value, " is no option; see tests/matrix/run_all.h"));
  }
  return o;
}

// One model or the other, so that the cells that differ in one more value alone have the other one.
bool has_its_turn(const Cell& cell) {
  const int others = std::accumulate(cell.begin(), cell.end(), 0) - cell[kModel];
  return others % static_cast<int>(factors()[kModel].values.size()) == cell[kModel];
}

// Mixed up, so that a run that is broken off has seen some of everything.
std::vector<Cell> wanted_cells(const Options& o) {
  std::vector<Cell> cells = legal_cells(), mixed;
  std::erase_if(cells, [&](const Cell& cell) { return name_of(cell).find(o.only) == std::string::npos; });
  if (cells.empty()) throw std::runtime_error(concat("no legal cell has ", o.only, " in its name"));
  if (o.models == "turns") std::erase_if(cells, [](const Cell& cell) { return !has_its_turn(cell); });
  if (cells.empty()) throw std::runtime_error(concat(o.only, " is the other model's turn; add --models both"));
  std::shuffle(cells.begin(), cells.end(), std::mt19937_64(1));
  for (size_t i = 0; i < cells.size(); i += o.every) mixed.push_back(cells[i]);
  return mixed;
}

struct Outcome {
  double tolerances = 0, loss = 0, norm = 0, weight = 0, seconds = 0;
  std::string text;  // where the largest deviation is, or the error; one line
  bool failed = true;
};

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\t') c = ' ';
  return text;
}

Outcome run_cell(const Cell& cell) {
  Outcome out;
  const Value config = config_of(cell, base_config());
  const Reference& reference = reference_of(config);
  const auto start = std::chrono::steady_clock::now();  // Waits: it is only told
  try {
    const Curve curve = run_curve(config, ranks_of(cell));
    if (const std::string missing = missing_plugin(cell, curve); !missing.empty())
      throw std::runtime_error("it ran without " + missing);
    const Deviation d = deviation(curve, reference);
    out.tolerances = d.tolerances, out.loss = d.loss, out.norm = d.norm, out.weight = d.weight;
    out.failed = !(d.tolerances <= 1);
    out.text = one_line(out.failed ? d.outside : d.where);
  } catch (const std::exception& e) {
    out.text = one_line(e.what());
  }
  // Waits: it is only told
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::string to_line(const Outcome& o) {
  char numbers[200];
  std::snprintf(numbers, sizeof numbers, "%d\t%.17g\t%.17g\t%.17g\t%.17g\t%.3f\t", o.failed, o.tolerances, o.loss,
                o.norm, o.weight, o.seconds);
  return numbers + o.text + "\n";
}

Outcome from_line(const std::string& line) {
  Outcome o;
  int failed = 1, used = 0;
  if (std::sscanf(line.c_str(), "%d\t%lf\t%lf\t%lf\t%lf\t%lf\t%n", &failed, &o.tolerances, &o.loss, &o.norm, &o.weight,
                  &o.seconds, &used) < 6)
    throw std::runtime_error("a child wrote: " + line);
  o.failed = failed != 0;
  o.text = line.substr(static_cast<size_t>(used));
  return o;
}

// A child process and the cells it has been given; the first one is what it is at.
struct Worker {
  pid_t pid = -1;
  int from = -1;
  std::deque<Cell> cells;
  std::string pending;
};

void start(Worker& worker) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  worker.pid = fork();
  if (worker.pid == 0) {
    close(ends[0]);
    for (const Cell& cell : worker.cells) {
      const std::string line = to_line(run_cell(cell));
      if (write(ends[1], line.data(), line.size()) < 0) _exit(2);
    }
    std::exit(0);  // with destructors: temporary folders go
  }
  close(ends[1]);
  worker.from = ends[0];
}

class Run {
 public:
  explicit Run(const Options& options) : options_(options), cells_(wanted_cells(options)) {
    if (!options.log.empty()) log_.open(options.log);
  }

  int go() {
    std::vector<Worker> workers(options_.jobs);
    for (size_t i = 0; i < cells_.size(); ++i) workers[i % options_.jobs].cells.push_back(cells_[i]);
    for (Worker& worker : workers)
      if (!worker.cells.empty()) start(worker);
    while (wait_for_some(workers)) {
    }
    const std::string table = table_text();
    std::printf("%s", table.c_str());
    if (!options_.table.empty()) std::ofstream(options_.table) << table;
    return failed_ == 0 ? 0 : 1;
  }

 private:
  bool wait_for_some(std::vector<Worker>& workers) {
    std::vector<pollfd> ready;
    std::vector<Worker*> whose;
    for (Worker& worker : workers)
      if (worker.from >= 0) ready.push_back({worker.from, POLLIN, 0}), whose.push_back(&worker);
    if (ready.empty()) return false;
    poll(ready.data(), ready.size(), -1);
    for (size_t i = 0; i < ready.size(); ++i)
      if (ready[i].revents) read_some(*whose[i]);
    return true;
  }

  void read_some(Worker& worker) {
    char buffer[4096];
    const ssize_t got = read(worker.from, buffer, sizeof buffer);
    if (got <= 0) return ended(worker);
    worker.pending.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = worker.pending.find('\n')) != std::string::npos; worker.pending.erase(0, end + 1)) {
      note(worker.cells.front(), from_line(worker.pending.substr(0, end)));
      worker.cells.pop_front();
    }
  }

  void ended(Worker& worker) {
    int status = 0;
    waitpid(worker.pid, &status, 0);
    close(worker.from);
    worker.from = -1, worker.pending.clear();
    if (worker.cells.empty()) return;
    Outcome crashed;
    crashed.text = concat("its process ended, status ", status);
    note(worker.cells.front(), crashed);
    worker.cells.pop_front();
    if (!worker.cells.empty()) start(worker);
  }

  void note(const Cell& cell, const Outcome& o) {
    ++done_;
    const std::string name = name_of(cell);
    if (o.failed) std::printf("FAILED %s: %s\n", name.c_str(), o.text.c_str()), ++failed_;
    if (done_ % 100 == 0) std::printf("%zu of %zu, %zu failed\n", done_, cells_.size(), failed_);
    std::fflush(stdout);
    if (log_.is_open()) log_ << (o.failed ? "FAILED\t" : "ok\t") << name << "\t" << to_line(o) << std::flush;
    seconds_ += o.seconds;
    if (o.seconds > slowest_.seconds) slowest_ = o, slowest_name_ = name;
    if (o.failed) return;
    keep_largest(largest_[0], o.tolerances, name + ", " + o.text);
    keep_largest(largest_[1], o.loss, name);
    keep_largest(largest_[2], o.norm, name);
    keep_largest(largest_[3], o.weight, name);
  }

  struct Largest {
    double value = 0;
    std::string where;
  };
  static void keep_largest(Largest& kept, double value, const std::string& where) {
    if (value >= kept.value) kept = {value, where};
  }

  std::string excused_rows() const {
    std::map<const Rule*, size_t> excused;
    for (const Cell& cell : every_cell())
      if (const Rule* rule = excuse(cell)) ++excused[rule];
    std::string rows;
    for (const Rule& rule : rules()) rows += concat("| excused: ", rule.why, " | ", excused[&rule], " | |\n");
    return rows;
  }

  std::string table_text() const {
    const auto figure = [](const char* format, double value) {
      char text[40];
      std::snprintf(text, sizeof text, format, value);
      return std::string(text);
    };
    std::string table =
        concat("| cells | number | where |\n| --- | --- | --- |\n| all | ", every_cell().size(), " | |\n");
    table += excused_rows();
    table += concat("| legal | ", legal_cells().size(), " | |\n| run",
                    options_.models == "turns" ? ", the models in turn" : "", " | ", done_,
                    " | |\n| outside their tolerance, refused or ended | ", failed_, " | |\n");
    const char* what[] = {"largest deviation, in tolerances", "of a loss", "of a norm, relative", "of a final weight"};
    for (size_t i = 0; i < 4; ++i)
      table += concat("| ", what[i], " | ", figure(i == 0 ? "%.2f" : "%.1e", largest_[i].value), " | ",
                      largest_[i].where, " |\n");
    table += concat("| slowest cell, s | ", figure("%.2f", slowest_.seconds), " | ", slowest_name_, " |\n");
    return table + concat("| all cells one after another, s | ", figure("%.0f", seconds_), " | |\n");
  }

  const Options options_;
  const std::vector<Cell> cells_;
  std::ofstream log_;
  size_t done_ = 0, failed_ = 0;
  double seconds_ = 0;
  Outcome slowest_;
  std::string slowest_name_;
  Largest largest_[4];
};

}  // namespace

int run_all(const std::vector<std::string>& arguments) {
  try {
    return Run(parse(arguments)).go();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "matrix_test --all: %s\n", e.what());
    return 2;
  }
}

}  // namespace drivetrain::test
