// `drivetrain checkpoint list|verify|show|diff|average`: looks into the checkpoints of a run. No model is built.
#include <csignal>
#include <cstring>
#include <iostream>

#include "base/printable.h"
#include "checkpoint/saver.h"
#include "checkpoint_tools/average.h"
#include "checkpoint_tools/diff.h"
#include "checkpoint_tools/list.h"
#include "checkpoint_tools/show.h"
#include "checkpoint_tools/verify.h"
#include "cli/error_line.h"
#include "shared/commands.h"

namespace drivetrain {
namespace {

std::atomic<int> average_signal = 0;

extern "C" void stop_average(int signal) { average_signal = signal; }

// One that is ignored, such as SIGHUP under nohup, stays so.
void watch_signals_of_average() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, stop_average) == SIG_IGN) std::signal(signal, SIG_IGN);
}

StoredRun open_run(const cli::Arguments& arguments, const Registry& registry, const std::string& folder) {
  return StoredRun(registry, folder, arguments.text("--store"));
}

// Of who asked for the newest and got those from this step on: those that were no choice.
void note_passed_over(const StoredRun& run, int64_t oldest) {
  for (const std::string& tag : run.damaged_tags())
    if (step_of_tag(tag).value_or(-1) > oldest)
      std::cerr << cli::note_line(
          printable(concat(tag, " is damaged and passed over: ", run.damage(tag).front(), verify_hint(run.folder()))));
}

// The newest is taken with a word about damaged ones that are newer.
const StoredTag& find(const StoredRun& run, const std::string& word) {
  const StoredTag& tag = run.find(word);
  if (word.empty() || word == kNewest) note_passed_over(run, tag.step);
  return tag;
}

template <class Text, class Json>
void print(const cli::Arguments& arguments, const Text& text, const Json& json) {
  if (arguments.has("--json"))
    std::cout << printable_json(json().to_json(2)) << "\n";
  else
    std::cout << printable(text());
}

int list(const cli::Arguments& arguments, const Registry& registry) {
  const StoredRun run = open_run(arguments, registry, arguments.plain()[0]);
  print(
      arguments, [&] { return list_text(run); }, [&] { return list_value(run); });
  return 0;
}

int verify(const cli::Arguments& arguments, const Registry& registry) {
  const StoredRun run = open_run(arguments, registry, arguments.plain()[0]);
  return verify_checkpoints(run, arguments.plain().size() > 1 ? arguments.plain()[1] : "", arguments.has("--json"),
                            std::cout);
}

// FOLDER [TAG] [NAME]: one word behind the folder is a tag if there is such a checkpoint.
int show(const cli::Arguments& arguments, const Registry& registry) {
  const std::vector<std::string>& words = arguments.plain();
  const StoredRun run = open_run(arguments, registry, words[0]);
  const bool only_name = words.size() == 2 && !run.knows(words[1]);
  const StoredTag& tag = find(run, words.size() > 1 && !only_name ? words[1] : "");
  if (words.size() == 3 || only_name)
    print(
        arguments, [&] { return show_tensors_text(run, tag, words.back()); },
        [&] { return show_tensors_value(run, tag, words.back()); });
  else
    print(
        arguments, [&] { return show_text(run, tag); }, [&] { return show_value(run, tag); });
  return 0;
}

int diff(const cli::Arguments& arguments, const Registry& registry) {
  std::vector<std::shared_ptr<const Checkpoint>> opened;
  std::vector<std::string> names;
  for (const std::string& word : arguments.plain()) {
    const auto [folder, wanted] = split_folder_and_tag(word);
    const StoredRun run = open_run(arguments, registry, folder);
    const StoredTag& tag = find(run, wanted);
    opened.push_back(run.open(tag)), names.push_back(folder + ":" + tag.tag);
  }
  std::optional<double> tolerance;
  if (arguments.has("--tolerance")) tolerance = arguments.real("--tolerance");
  const CheckpointDifferences found = differences(*opened[0], *opened[1], tolerance);
  print(
      arguments, [&] { return diff_text(found, names[0], names[1], tolerance); },
      [&] { return diff_value(found, names[0], names[1], tolerance); });
  return found.state_differs() ? 1 : 0;
}

std::vector<std::string> tags_to_average(const cli::Arguments& arguments, const StoredRun& run) {
  std::vector<std::string> tags(arguments.plain().begin() + 1, arguments.plain().end());
  if (!arguments.has("--last")) {
    if (tags.size() < 2)
      throw fail(ErrorCode::config, "checkpoint average: wants two tags or more, or --last N for the newest N; ",
                 "`drivetrain checkpoint list` shows what there is");
    return tags;
  }
  const auto last = static_cast<size_t>(arguments.whole("--last", 0));
  if (!tags.empty()) throw fail(ErrorCode::config, "checkpoint average: tags and --last exclude each other");
  note_passed_over(run, run.tags().empty() ? -1 : run.tags()[std::min(last, run.tags().size()) - 1].step);
  if (last > run.tags().size())
    throw fail(ErrorCode::config, "checkpoint average: --last ", last, ": ", run.folder(), " has ", run.tags().size(),
               " complete checkpoints");
  for (size_t i = 0; i < last; ++i) tags.push_back(run.tags()[i].tag);
  return tags;
}

int average(const cli::Arguments& arguments, const Registry& registry) {
  const StoredRun run = open_run(arguments, registry, arguments.plain()[0]);
  const AverageRequest request{tags_to_average(arguments, run), arguments.text("--output")};
  watch_signals_of_average();
  const AverageOutcome outcome = average_checkpoints(run, registry, request, average_signal);
  if (outcome.stopped) {
    const int signal = average_signal;
    std::cerr << concat("drivetrain: stopped by signal ", signal, " (", strsignal(signal), "); nothing was saved\n");
    return 128 + signal;
  }
  print(
      arguments, [&] { return outcome.text(request.output); }, [&] { return outcome.value(request.output); });
  return 0;
}

}  // namespace

int checkpoint_command(const cli::Arguments& arguments) {
  const Registry registry(search_path({}, arguments.all("--plugin-path")));
  const std::string_view command = arguments.command().name;
  if (command == "checkpoint list") return list(arguments, registry);
  if (command == "checkpoint verify") return verify(arguments, registry);
  if (command == "checkpoint show") return show(arguments, registry);
  if (command == "checkpoint diff") return diff(arguments, registry);
  if (command == "checkpoint average") return average(arguments, registry);
  throw fail(ErrorCode::internal, "the program knows command ", command, ", the library does not");
}

}  // namespace drivetrain
