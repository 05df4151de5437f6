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

int generate_command(const cli::Arguments& arguments) {
  const std::string &folder = arguments.plain().front(), prompt = arguments.text("--prompt");
  if (prompt.empty()) throw fail(ErrorCode::config, "generate: --prompt wants a prompt of at least one byte");
  const double temperature = arguments.real("--temperature");
  const int64_t to_add = arguments.whole("--tokens");
  install_cpu_allocator();
  const Registry registry(search_path({}, arguments.all("--plugin-path")));
  Inference model(folder, arguments.whole("--seed"), registry, make_console_log(console_settings(0)));
  if (!model.model().byte_vocabulary())
    throw fail(
        ErrorCode::config, folder, " has a vocabulary of ", model.model().facts().vocab_size,
        " tokens: without a tokenizer only byte vocabularies (256 to 512 tokens) can be sampled in this version");

  std::vector<int64_t> tokens;
  for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  std::cout << prompt << std::flush;
  for (int64_t i = 0; i < to_add; ++i) {
    tokens.push_back(next_token(model, tokens, i, temperature));
    if (tokens.back() < 256) std::cout << static_cast<char>(tokens.back()) << std::flush;
  }
  std::cout << std::endl;
  if (!std::cout) throw Error(ErrorCode::io, "cannot write the sample to standard output");
  return 0;
}

}  // namespace drivetrain
