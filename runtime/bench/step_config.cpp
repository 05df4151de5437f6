#include "bench/step_config.h"

#include <algorithm>

#include "config/load.h"

namespace drivetrain {
namespace {

// Where the options of a section stand: below "params" if it has them.
Value* section_options(Value& config, const std::string& name) {
  if (!config.is_object()) return nullptr;
  for (auto& member : config.members()) {
    if (member.key != name || !member.value.is_object()) continue;
    for (auto& inner : member.value.members())
      if (inner.key == "params") return &inner.value;
    return &member.value;
  }
  return nullptr;
}

class Shape {
 public:
  Shape(Value& config, const BenchArguments& arguments, Problems& problems)
      : config_(config), arguments_(arguments), problems_(problems) {}

  void model() {
    if (arguments_.has("--hidden"))  // the model's own rule gives its MLP again
      if (Value* options = section_options(config_, "model"))
        for (const char* key : {"ffn_hidden_size", "n_inner", "intermediate_size"}) options->erase(key);
    number("--layers", "model.num_layers");
    number("--hidden", "model.hidden_size");
    number("--heads", "model.num_attention_heads");
    number("--vocab", "model.vocab_size");
  }

  void batch() {
    if (arguments_.has("--batch")) config_.erase("train_batch_size");
    number("--batch", "train_micro_batch_size_per_gpu");
    number("--seq", "dataset.seq_length");
    if (!arguments_.has("--seq")) return;
    const Value* options = section_options(config_, "model");
    const Value* positions = options ? options->find("max_position_embeddings") : nullptr;
    const int64_t wanted = arguments_.whole("--seq", 1);
    if (positions && positions->is_int() && positions->as_int() < wanted)
      set(concat("model.max_position_embeddings=", wanted));
  }

  void run() {
    number("--threads", "threads");
    if (arguments_.has("--device")) set("device=" + arguments_.text("--device", ""));
    const std::string dtype = arguments_.text("--dtype", "");
    if (dtype.empty()) return;
    if (dtype != "f32" && dtype != "bf16")
      throw fail(ErrorCode::config, "bench step: --dtype wants f32 or bf16, got \"", dtype, "\"");
    for (const char* section : {"bf16", "bfloat16", "fp16"}) config_.erase(section);
    if (dtype == "bf16") set("bf16.enabled=true");
  }

  void set(const std::string& argument) { apply_set(config_, argument, ++count_, problems_); }

 private:
  void number(const std::string& option, const std::string& key) {
    if (arguments_.has(option)) set(concat(key, "=", arguments_.whole(option, 1)));
  }

  Value& config_;
  const BenchArguments& arguments_;
  Problems& problems_;
  int count_ = 0;
};

}  // namespace

const char* default_step_config() {
  return
#include "bench_gpt2_124m_b4_t64.inc"
      ;
}

const char* startup_config() {
  return
#include "bench_startup.inc"
      ;
}

Value bench_step_config(const BenchArguments& arguments, std::string& path, Problems& problems) {
  const bool given = !arguments.plain().empty();
  path = given ? arguments.plain().front() : "configs/bench/gpt2_124m_b4_t64.json";
  Value config = given ? load_config(path, {}, problems) : parse_json(default_step_config(), path);
  Shape shape(config, arguments, problems);
  for (const std::string& argument : arguments.all("--set"))
    shape.set(argument);  // first, so that their numbers are theirs
  shape.model();
  shape.batch();
  shape.run();
  config.set("eval_interval", 0);
  config.set("save_final", false);
  return config;
}

}  // namespace drivetrain
