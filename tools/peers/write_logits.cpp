// Our logits of a folder, for tools/peers/hf_equal_logits.py: write_logits FOLDER FILE.safetensors [ROWS LENGTH]
// writes `tokens` int64 [B, S], drawn by Philox from the folder's vocabulary, and `logits` float32 [B, S, V].
#include <ATen/ops/empty.h>

#include <iostream>

#include "generate/inference.h"
#include "log/log_console.h"
#include "state/safetensors_writer.h"

namespace drivetrain {
namespace {

at::Tensor draw_tokens(int64_t rows, int64_t length, int64_t vocabulary) {
  at::Tensor tokens = at::empty({rows, length}, at::TensorOptions(at::kLong));
  auto* data = tokens.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens.numel(); ++i)
    data[i] = static_cast<int64_t>(philox({static_cast<uint32_t>(i), 0, 0, 0}, {1, 0})[0]) % vocabulary;
  return tokens;
}

int write(const std::string& folder, const std::string& file, int64_t rows, int64_t length) {
  const Registry registry(SearchPath::standard({}, {}, ""));
  Inference model(folder, 1, registry, make_console_log({}));
  const at::Tensor tokens = draw_tokens(rows, length, model.model().facts().vocab_size);
  const at::Tensor logits = model.logits(tokens).to(at::kFloat).contiguous();
  SafetensorsWriter writer(
      file, {{"tokens", at::kLong, tokens.sizes().vec()}, {"logits", at::kFloat, logits.sizes().vec()}}, {});
  writer.put("tokens", tokens), writer.put("logits", logits);
  writer.finish();
  return 0;
}

}  // namespace
}  // namespace drivetrain

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) {
    std::cerr << "usage: write_logits FOLDER FILE.safetensors [ROWS LENGTH]\n";
    return 2;
  }
  try {
    return drivetrain::write(argv[1], argv[2], argc == 5 ? std::atoll(argv[3]) : 2,
                             argc == 5 ? std::atoll(argv[4]) : 32);
  } catch (const drivetrain::Error& e) {
    std::cerr << "write_logits: error: " << e.what() << "\n";
    return static_cast<int>(e.code());
  }
}
