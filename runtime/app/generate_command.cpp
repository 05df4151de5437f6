// `drivetrain generate`: samples bytes from a run folder or a Hugging Face folder.
// The whole window is run for every token: there is no key/value cache yet.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <iostream>

#include "app/commands.h"
#include "memory/cpu_allocator.h"
#include "run/inference.h"

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
  throw fail(ErrorCode::config, option, " wants a number of at least ", minimum, ", got \"", text, "\"",
             kGenerateUsage);
}

GenerateArguments parse_generate_arguments(const std::vector<std::string>& arguments) {
  const auto integer = [](const std::string& s, size_t* used) { return static_cast<int64_t>(std::stoll(s, used)); };
  const auto real = [](const std::string& s, size_t* used) { return std::stod(s, used); };
  GenerateArguments args;
  bool prompted = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string a = arguments[i];
    if (a == "--prompt")
      args.prompt = option_value(arguments, i), prompted = true;
    else if (a == "--tokens")
      args.tokens = number<int64_t>(a, option_value(arguments, i), integer, 1);
    else if (a == "--temperature")
      args.temperature = number<double>(a, option_value(arguments, i), real, 0);
    else if (a == "--seed")
      args.seed = number<int64_t>(a, option_value(arguments, i), integer, 0);
    else if (a == "--plugin-path")
      args.plugin_paths.push_back(option_value(arguments, i));
    else if (a.rfind("-", 0) == 0)
      throw fail(ErrorCode::config, "generate does not know ", a, kGenerateUsage);
    else if (args.folder.empty())
      args.folder = a;
    else
      throw fail(ErrorCode::config, "generate takes one folder, got ", args.folder, " and ", a, kGenerateUsage);
  }
  if (args.folder.empty() || !prompted || args.prompt.empty())
    throw fail(ErrorCode::config, "generate wants a folder and a prompt of at least one byte", kGenerateUsage);
  return args;
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

// The token after `tokens`, of which the model sees the last window.
int64_t next_token(Inference& model, const std::vector<int64_t>& tokens, int64_t index, double temperature) {
  const size_t window = std::min(tokens.size(), static_cast<size_t>(model.model().facts().max_position_embeddings));
  const auto seen = at::ArrayRef<int64_t>(tokens).slice(tokens.size() - window);
  const at::Tensor logits = model.logits(at::tensor(seen, at::kLong).unsqueeze(0));
  return pick(logits[0][-1], temperature, {model.seed(), static_cast<uint64_t>(index), hash_name("generate"), 0, {}});
}

}  // namespace

int generate_command(const std::vector<std::string>& arguments) {
  const GenerateArguments args = parse_generate_arguments(arguments);
  install_cpu_allocator();
  const Registry registry(search_path({}, args.plugin_paths));
  Inference model(args.folder, args.seed, registry, make_console_log(console_settings(0)));
  if (!model.model().byte_vocabulary())
    throw fail(
        ErrorCode::config, args.folder, " has a vocabulary of ", model.model().facts().vocab_size,
        " tokens: without a tokenizer only byte vocabularies (256 to 512 tokens) can be sampled in this version");

  std::vector<int64_t> tokens;
  for (const char c : args.prompt) tokens.push_back(static_cast<unsigned char>(c));
  std::cout << args.prompt << std::flush;
  for (int64_t i = 0; i < args.tokens; ++i) {
    tokens.push_back(next_token(model, tokens, i, args.temperature));
    if (tokens.back() < 256) std::cout << static_cast<char>(tokens.back()) << std::flush;
  }
  std::cout << std::endl;
  if (!std::cout) throw Error(ErrorCode::io, "cannot write the sample to standard output");
  return 0;
}

}  // namespace drivetrain
