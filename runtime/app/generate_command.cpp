// `drivetrain generate`: samples bytes from a run folder or a Hugging Face folder. The whole window is run for every token:
// there is no key/value cache yet.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <filesystem>
#include <iostream>

#include "app/commands.h"
#include "compose/composition.h"
#include "memory/cpu_allocator.h"
#include "step/executor.h"

namespace drivetrain {
namespace {

struct GenerateArguments {
  std::string folder, prompt;
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t seed = 1;
  std::vector<std::string> plugin_paths;
};

constexpr const char* kGenerateUsage =
    "\nusage: drivetrain generate FOLDER --prompt TEXT [--tokens N] [--temperature T] [--seed S]   (T = 0: greedy)";

template <class T>
T number(const std::string& option, const std::string& text, T (*parse)(const std::string&, size_t*), T minimum) {
  try {
    size_t used = 0;
    const T value = parse(text, &used);
    if (used == text.size() && value >= minimum) return value;
  } catch (const std::exception&) {  // reported below, like trailing garbage
  }
  throw fail(ErrorCode::config, option, " wants a number of at least ", minimum, ", got \"", text, "\"", kGenerateUsage);
}

GenerateArguments parse_generate_arguments(const std::vector<std::string>& arguments) {
  const auto integer = [](const std::string& s, size_t* used) { return static_cast<int64_t>(std::stoll(s, used)); };
  const auto real = [](const std::string& s, size_t* used) { return std::stod(s, used); };
  GenerateArguments args;
  bool prompted = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string a = arguments[i];
    if (a == "--prompt") args.prompt = option_value(arguments, i), prompted = true;
    else if (a == "--tokens") args.tokens = number<int64_t>(a, option_value(arguments, i), integer, 1);
    else if (a == "--temperature") args.temperature = number<double>(a, option_value(arguments, i), real, 0);
    else if (a == "--seed") args.seed = number<int64_t>(a, option_value(arguments, i), integer, 0);
    else if (a == "--plugin-path") args.plugin_paths.push_back(option_value(arguments, i));
    else if (a.rfind("-", 0) == 0) throw fail(ErrorCode::config, "generate does not know ", a, kGenerateUsage);
    else if (args.folder.empty()) args.folder = a;
    else throw fail(ErrorCode::config, "generate takes one folder, got ", args.folder, " and ", a, kGenerateUsage);
  }
  if (args.folder.empty() || !prompted || args.prompt.empty())
    throw fail(ErrorCode::config, "generate wants a folder and a prompt of at least one byte", kGenerateUsage);
  return args;
}

// A run folder holds its weights in final/.
std::string weights_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  for (const fs::path& path : {fs::path(folder), fs::path(folder) / "final"})
    if (fs::exists(path / "config.json", unknown)) return fs::absolute(path).string();
  throw fail(ErrorCode::config, folder, " holds no model: neither ", folder, "/config.json nor ", folder,
             "/final/config.json is there. Give a run folder of a finished run or a Hugging Face folder");
}

int64_t pick(const at::Tensor& logits_V, double temperature, const RandomKey& key) {
  const auto likeliest = logits_V.argmax().item<int64_t>();
  const at::Tensor top = logits_V[likeliest].to(at::kDouble);
  if (!std::isfinite(top.item<double>()))
    throw fail(ErrorCode::numeric, "the model's output is not finite: its weights hold infinities or NaN, or overflow");
  if (temperature == 0) return likeliest;
  at::Tensor draw = at::zeros({1, 1}, at::TensorOptions(at::kFloat));
  fill_uniform(draw, key);
  const at::Tensor p = ((logits_V.to(at::kDouble) - top) / temperature).softmax(0);
  const double* data = p.const_data_ptr<double>();
  double rest = draw.item<float>();
  for (int64_t v = 0; v < p.numel(); ++v)
    if ((rest -= data[v]) < 0) return v;
  return p.numel() - 1;  // the sum fell short of the draw by rounding
}

class Generator {
 public:
  explicit Generator(Composition& run)
      : run_(run), state_(run.services->seed), executor_(run.units, run.strategies, state_),
        program_(run.schedule->program(0, 1, Pass::forward_only)) {}

  int64_t next(const std::vector<int64_t>& tokens, int64_t index, double temperature) {
    const size_t window = std::min(tokens.size(), static_cast<size_t>(run_.facts.max_position_embeddings));
    Batch batch;
    batch.tokens_BS = at::tensor(at::ArrayRef<int64_t>(tokens).slice(tokens.size() - window), at::kLong).unsqueeze(0);
    executor_.run(program_, index + 1, Mode::generate, [&](int64_t) { return batch; }, 0);
    const RandomKey key = {run_.services->seed, static_cast<uint64_t>(index), hash_name("generate"), 0};
    return pick(executor_.logits()[0][-1], temperature, key);
  }

 private:
  Composition& run_;
  StepState state_;
  Executor executor_;
  Program program_;
};

std::unique_ptr<Composition> load_model(const GenerateArguments& args, const Registry& registry, const RankSetup& setup) {
  Problems problems;
  Value config = Value::object();
  config.set("model", Value::object()).set("from", weights_folder(args.folder));
  config.set("seed", args.seed);
  config.set("train_steps", 1);  // every run's settings want some
  const RunSettings settings = read_run_settings(config, "generate", problems);
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, "cpu", problems, Purpose::generate);
  problems.throw_if_any();
  auto run = plan_run(settings, std::move(chosen), registry, setup, Purpose::generate);
  if (!run->model->byte_vocabulary())
    throw fail(ErrorCode::config, args.folder, " has a vocabulary of ", run->facts.vocab_size,
               " tokens: without a tokenizer only byte vocabularies (256 to 512 tokens) can be sampled in this version");
  build_run(*run);
  return run;
}

}  // namespace

int generate_command(const std::vector<std::string>& arguments) {
  const GenerateArguments args = parse_generate_arguments(arguments);
  install_cpu_allocator();
  RankSetup setup;
  setup.log = make_console_log(console_settings(0));
  setup.store = make_local_store();
  const Registry registry(search_path({}, args.plugin_paths));
  const auto run = load_model(args, registry, setup);

  std::vector<int64_t> tokens;
  for (const char c : args.prompt) tokens.push_back(static_cast<unsigned char>(c));
  std::cout << args.prompt << std::flush;
  Generator generator(*run);
  for (int64_t i = 0; i < args.tokens; ++i) {
    tokens.push_back(generator.next(tokens, i, args.temperature));
    if (tokens.back() < 256) std::cout << static_cast<char>(tokens.back()) << std::flush;
  }
  std::cout << std::endl;
  if (!std::cout) throw Error(ErrorCode::io, "cannot write the sample to standard output");
  return 0;
}

}  // namespace drivetrain
