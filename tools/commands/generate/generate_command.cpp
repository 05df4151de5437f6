// `drivetrain generate`: samples text from a run folder or a Hugging Face folder.
// The whole window is run for every token: there is no key/value cache yet.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/printable.h"
#include "generate/inference.h"
#include "generate/text_tokens.h"
#include "memory/cpu_allocator.h"
#include "rendezvous/rendezvous.h"
#include "shared/commands.h"

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
int64_t next_token(Inference& model, const std::vector<int64_t>& tokens, int64_t index, double temperature,
                   int64_t vocab_size) {
  const size_t window = std::min(tokens.size(), static_cast<size_t>(model.model().facts().max_position_embeddings));
  const auto seen = at::ArrayRef<int64_t>(tokens).slice(tokens.size() - window);
  const at::Tensor logits = model.logits(at::tensor(seen, at::kLong).unsqueeze(0));
  return pick(logits[0][-1].narrow(0, 0, vocab_size), temperature,
              {model.seed(), static_cast<uint64_t>(index), hash_name("generate"), 0, {}});
}

// What samples are drawn with.
struct Sampler {
  Inference& model;
  const double temperature;
  const int64_t to_add;
};

void say(const std::string& text) { std::cout << text << std::flush; }

// A model of bytes, as dataset/text trains them.
void sample_bytes(const Sampler& sampler, const std::string& prompt) {
  std::vector<int64_t> tokens;
  for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  const int64_t vocab_size = sampler.model.model().facts().vocab_size;
  say(prompt);
  for (int64_t i = 0; i < sampler.to_add; ++i) {
    tokens.push_back(next_token(sampler.model, tokens, i, sampler.temperature, vocab_size));
    if (tokens.back() < 256) say(std::string(1, static_cast<char>(tokens.back())));
  }
}

// Ends before --tokens where the model says that the text is over.
void sample_text(const Sampler& sampler, const std::string& prompt, const OpenedTokenizer& opened,
                 const TextEnds& text) {
  std::vector<int32_t> ids;
  opened.tokenizer->encode(prompt, ids);
  const bool begun = ids.size() >= text.begin.size() && std::equal(text.begin.begin(), text.begin.end(), ids.begin());
  if (!begun) ids.insert(ids.begin(), text.begin.begin(), text.begin.end());
  if (ids.empty()) throw fail(ErrorCode::config, "generate: the prompt has no token in ", opened.id);
  std::vector<int64_t> tokens(ids.begin(), ids.end());
  TextStream stream(*opened.tokenizer, std::move(ids));
  say(prompt);
  for (int64_t i = 0; i < sampler.to_add; ++i) {
    tokens.push_back(next_token(sampler.model, tokens, i, sampler.temperature, opened.facts.vocab_size));
    if (text.ends.contains(tokens.back())) break;
    say(stream.add(static_cast<int32_t>(tokens.back())));
  }
  say(stream.rest());
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
  const auto log = make_console_log(console_settings(0));
  const auto store = make_local_store();
  const Services services{*log, *store};
  const TokenizerReaders readers(registry, services);
  const auto tokenizer = tokenizer_of(folder, arguments.text("--tokenizer"), model.model().facts().vocab_size, readers);
  const Sampler sampler{model, temperature, to_add};
  if (tokenizer) {
    sample_text(sampler, prompt, *tokenizer, text_ends(folder, *tokenizer));
  } else if (model.model().byte_vocabulary()) {
    std::cerr << printable(folder) << " names no tokenizer: tokens are taken for bytes" << std::endl;
    sample_bytes(sampler, prompt);
  } else {
    throw fail(ErrorCode::config, folder, " has a vocabulary of ", model.model().facts().vocab_size,
               " tokens and holds no tokenizer\n   give the one that the model was trained with: --tokenizer FOLDER");
  }
  std::cout << std::endl;
  if (!std::cout) throw Error(ErrorCode::io, "cannot write the sample to standard output");
  return 0;
}

}  // namespace drivetrain
