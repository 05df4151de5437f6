// `drivetrain evaluate`: one set of data on the weights of a run folder or a Hugging Face folder.
#include <chrono>
#include <filesystem>
#include <iostream>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "generate/eval_set.h"
#include "generate/inference.h"
#include "generate/model_source.h"
#include "memory/cpu_allocator.h"
#include "report/text_table.h"
#include "shared/commands.h"
#include "train/run_folder.h"

namespace drivetrain {
namespace {

struct Done {
  std::string folder;
  const EvalSet& set;
  const ChosenPlugin& plugin;
  Inference::Evaluated evaluated;
  double seconds = 0;
};

Value object_of(const std::string& key, Value value) { return Value::Object{{key, std::move(value)}}; }

// As EleutherAI's lm-evaluation-harness writes it: figures are "NAME,FILTER", and there is no filter here.
Value results_of(const Done& done) {
  Value results = Value::object();
  results.set("alias", done.set.name);
  for (const Value::Member& figure : done.evaluated.figures.members()) results.set(figure.key + ",none", figure.value);
  return object_of(done.set.name, std::move(results));
}

Value report_of(const Done& done, const Registry& registry, const cli::Arguments& arguments) {
  const std::string& name = done.set.name;
  const ChosenPlugin& plugin = done.plugin;
  Value config = Value::object();
  config.set("model", "drivetrain");
  config.set("model_args", "pretrained=" + done.folder);
  config.set("device", "cpu");
  config.set("batch_size", arguments.whole("--batch"));
  config.set("random_seed", done.set.seed);
  config.set("limit", arguments.has("--limit") ? Value(arguments.whole("--limit")) : Value());
  Value task = Value::object();
  task.set("task", name);
  task.set("type", plugin.name());
  task.set("params", registry.options(plugin.kind(), plugin.name()).to_value(plugin.options.get()));
  task.set("data", done.evaluated.facts.notes);
  Value report = Value::object();
  report.set("results", results_of(done));
  report.set("configs", object_of(name, std::move(task)));
  report.set("versions", object_of(name, registry.facts(plugin.kind(), plugin.name()).version));
  report.set("rows", object_of(name, done.evaluated.facts.rows));
  report.set("config", std::move(config));
  report.set("date", static_cast<double>(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  report.set("model_source", "drivetrain");
  report.set("model_name", done.folder);
  report.set("total_evaluation_time_seconds", formatted("%.3f", done.seconds));
  return report;
}

std::string text_of(const Done& done) {
  std::vector<TextRow> rows;
  const Value& figures = done.evaluated.figures;
  for (const Value::Member& figure : figures.members()) {
    if (figure.key.ends_with("_stderr")) continue;
    const Value* error = figures.find(figure.key + "_stderr");
    rows.push_back({figure.key, formatted("%.6g", figure.value.as_double()),
                    error ? formatted("+- %.4f", error->as_double()) : std::string()});
  }
  return concat(done.set.name, " (", done.plugin.id(), ") of ", done.folder, ": ", done.evaluated.facts.rows,
                " rows in ", formatted("%.1f", done.seconds), " s\n", aligned(rows, "  ", {1}));
}

// Where the results go is known to be there before an hour of work.
std::string output_of(const cli::Arguments& arguments) {
  const std::string output = arguments.text("--output", "");
  std::error_code unknown;
  if (output.empty()) return output;
  if (std::filesystem::is_directory(output, unknown))
    throw fail(ErrorCode::config, "--output ", output, " is a folder; name a file");
  const std::filesystem::path folder = std::filesystem::absolute(output).parent_path();
  if (!std::filesystem::is_directory(folder, unknown))
    throw fail(ErrorCode::config, "--output ", output, ": there is no folder ", folder.string(),
               "\n   make it, or name a file elsewhere");
  return output;
}

}  // namespace

int evaluate_command(const cli::Arguments& arguments) {
  install_cpu_allocator();
  const Registry registry(search_path({}, arguments.all("--plugin-path")));
  LogSettings settings = console_settings(0);
  if (arguments.has("--json")) settings.level = std::max(settings.level, LogLevel::warning);
  const std::shared_ptr<Log> log = make_console_log(settings);
  const std::string folder = readable_folder(arguments.plain()[0], *log);

  EvalSet set = find_eval_set(folder, arguments.plain()[1], registry);
  if (arguments.has("--limit")) set.set_option("limit", arguments.whole("--limit"));
  add_tokenizer(set, folder, arguments.text("--tokenizer", ""), registry);
  const ChosenPlugin plugin = choose_eval_set(set, registry);
  const std::string output = output_of(arguments);

  const auto start = std::chrono::steady_clock::now();
  Inference model(folder, set.seed, registry, log);
  Done done{folder, set, plugin, model.evaluate(set.name, plugin, set.seq_length, arguments.whole("--batch"))};
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string json = report_of(done, registry, arguments).to_json(2) + "\n";
  if (!output.empty()) write_text_file(output, json);
  std::cout << (arguments.has("--json") ? printable_json(json) : printable(text_of(done)));
  return 0;
}

}  // namespace drivetrain
