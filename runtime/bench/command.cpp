// `drivetrain bench NAME`: finds the benchmark, reads its arguments, prints its table or its object.
#include <algorithm>
#include <charconv>
#include <iostream>

#include "app/commands.h"
#include "bench/bench.h"
#include "config/suggest.h"

namespace drivetrain {
namespace {

struct Bench {
  const char *name, *usage, *summary;
  std::vector<std::string> options;  // beside --json and --threads
  size_t most;
  BenchReport (*run)(const BenchArguments&);
};

const std::vector<Bench>& benches() {
  static const std::vector<Bench> list = {
      {"step",
       "[CONFIG] [--set KEY=VALUE]... [--layers N] [--hidden N] [--heads N] [--vocab N] [--batch N] [--seq N] "
       "[--dtype f32|bf16] [--device cpu|cuda] [--steps N] [--warmup N]",
       "whole training steps by phase, beside the matrix products they are made of",
       {"--set", "--plugin-path", "--layers", "--hidden", "--heads", "--vocab", "--batch", "--seq", "--dtype",
        "--device", "--steps", "--warmup"},
       1,
       bench_step},
      {"kernels",
       "[--dtype f32|bf16|f16] [--device cpu|cuda] [--rounds N]",
       "every kernel against the memory bandwidth at its size",
       {"--dtype", "--device", "--rounds"},
       0,
       bench_kernels},
      {"optimizer",
       "[--elements N] [--device cpu|cuda] [--rounds N] [--plugin-path DIR]...",
       "norm, clip, update and zeroing by every optimizer against LibTorch's four passes",
       {"--elements", "--device", "--rounds", "--plugin-path"},
       0,
       bench_optimizer},
      {"attention",
       "[--batch N] [--heads N] [--groups N] [--head-size N] [--seq N] [--full] [--dtype f32|bf16|f16] [--device "
       "cpu|cuda] "
       "[--rounds N] [--plugin-path DIR]...",
       "every attention forward and backward against LibTorch's own",
       {"--batch", "--heads", "--groups", "--head-size", "--seq", "--dtype", "--device", "--rounds", "--plugin-path"},
       0,
       bench_attention},
      {"startup",
       "[-n RANKS] [--rounds N]",
       "from exec to the end of step 1, as a multiple of loading LibTorch",
       {"-n", "--rounds"},
       0,
       bench_startup},
      {"collectives",
       "[-n RANKS] [--op NAME,...] [--sizes BYTES,...] [--from BYTES] [--to BYTES] [--rounds N] [--device cpu|cuda] "
       "[--communicator NAME,...] [--set communicator.OPTION=VALUE]... [--plugin-path DIR]...",
       "every collective of a communicator over sizes: time, algorithm and bus bandwidth",
       {"-n", "--op", "--sizes", "--from", "--to", "--rounds", "--device", "--communicator", "--set", "--plugin-path"},
       0,
       bench_collectives},
      {"context",
       "[-n RANKS] [--batch N] [--heads N] [--groups N] [--head-size N] [--seq N] [--dtype f32|bf16|f16] [--attention "
       "NAME] "
       "[--rounds N] [--device cpu|cuda] [--plugin-path DIR]...",
       "attention over a sequence that ranks share against one rank alone",
       {"-n", "--batch", "--heads", "--groups", "--head-size", "--seq", "--dtype", "--attention", "--rounds",
        "--device", "--plugin-path"},
       0,
       bench_context}};
  return list;
}

std::string usage_of(const Bench& bench) {
  return concat("\nusage: drivetrain bench ", bench.name, " ", bench.usage, " [--threads N] [--json]");
}

std::string list_text() {
  std::string text;
  for (const Bench& bench : benches())
    text += concat("\n  ", bench.name, std::string(13 - std::string(bench.name).size(), ' '), bench.summary);
  return text;
}

const Bench& find_bench(const std::vector<std::string>& words) {
  if (words.empty() || words.front().rfind("-", 0) == 0)
    throw fail(ErrorCode::config, "bench wants the name of a benchmark:", list_text());
  std::vector<std::string> names;
  for (const Bench& bench : benches()) {
    if (words.front() == bench.name) return bench;
    names.push_back(bench.name);
  }
  throw fail(ErrorCode::config, "there is no benchmark \"", words.front(), "\"", suggestion(words.front(), names),
             list_text());
}

BenchArguments read_words(const Bench& bench, const std::vector<std::string>& words) {
  std::vector<std::string> flags{"--json"}, options = bench.options;
  options.push_back("--threads");
  if (std::string(bench.usage).find("--full") != std::string::npos) flags.push_back("--full");
  try {
    return BenchArguments(bench.name, {words.begin() + 1, words.end()}, flags, options, bench.most);
  } catch (const Error& e) {
    throw Error(e.code(), e.what() + usage_of(bench));
  }
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

BenchArguments::BenchArguments(const std::string& bench, const std::vector<std::string>& words,
                               const std::vector<std::string>& flags, const std::vector<std::string>& options,
                               size_t most)
    : bench_(bench) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (contains(flags, word))
      options_.emplace_back(word, "");
    else if (contains(options, word))
      options_.emplace_back(word, option_value(words, i));
    else if (word.rfind("-", 0) == 0)
      throw fail(ErrorCode::config, "bench ", bench, " does not know ", word);
    else
      plain_.push_back(word);
  }
  if (plain_.size() > most) throw fail(ErrorCode::config, "bench ", bench, ": \"", plain_[most], "\" was not expected");
}

std::vector<std::string> BenchArguments::all(const std::string& option) const {
  std::vector<std::string> values;
  for (const auto& [name, value] : options_)
    if (name == option) values.push_back(value);
  return values;
}

std::string BenchArguments::text(const std::string& option, const std::string& otherwise) const {
  const std::vector<std::string> values = all(option);
  return values.empty() ? otherwise : values.back();
}

int64_t BenchArguments::whole(const std::string& option, int64_t otherwise, int64_t least) const {
  if (!has(option)) return otherwise;
  const std::string text = all(option).back();
  int64_t number = 0;
  const auto [stop, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || stop != text.data() + text.size() || number < least)
    throw fail(ErrorCode::config, "bench ", bench_, ": ", option, " wants a whole number of at least ", least,
               ", got \"", text, "\"");
  return number;
}

std::vector<std::string> BenchArguments::options_without(const std::string& option) const {
  std::vector<std::string> words;
  for (const auto& [name, value] : options_) {
    if (name == option) continue;
    words.push_back(name);
    if (!value.empty()) words.push_back(value);  // a flag has none
  }
  return words;
}

int bench_command(const std::vector<std::string>& words) {
  const Bench& bench = find_bench(words);
  const BenchArguments arguments = read_words(bench, words);
  const BenchReport report = bench.run(arguments);
  if (!report.silent) std::cout << (arguments.has("--json") ? report.json.to_json() + "\n" : report.text) << std::flush;
  return 0;
}

}  // namespace drivetrain
