#include "options.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>

namespace drivetrain::muon {
namespace {

// What stands here for the other parameters, and otherwise in rest.params.
void check_rest(const Options& options, const Options& plain) {
  const auto refuse = [&](const char* key, bool given, const char* inside, const Value& here) {
    const Value* const there = options.rest.params.find(inside);
    if (given && there && !(*there == here) && !(there->is_number() && there->as_double() == here.as_double()))
      throw fail(ErrorCode::config, "optimizer/muon: ", key, " is ", here.to_json(), " and rest.params.", inside,
                 " is ", there->to_json(), ", which mean the same; remove one of them");
  };
  refuse("adam_lr", options.adam_lr.has_value(), "lr", options.adam_lr ? Value(*options.adam_lr) : Value());
  refuse("betas", options.betas != plain.betas, "betas",
         Value(Value::Array(options.betas.begin(), options.betas.end())));
  refuse("eps", options.eps != plain.eps, "eps", options.eps);
  refuse("bias_correction", options.bias_correction != plain.bias_correction, "bias_correction",
         options.bias_correction);
}

void check(const Options& options) {
  if (options.momentum >= 1)
    throw fail(ErrorCode::config, "optimizer/muon: momentum must be below 1; found ", options.momentum);
  if (options.amsgrad) throw fail(ErrorCode::config, "optimizer/muon: amsgrad is not in this version; remove it");
  if (!options.fp32_optimizer_states)
    throw fail(ErrorCode::config, "optimizer/muon: fp32_optimizer_states = false is not in this version; remove it");
  const Options plain;
  check_rest(options, plain);
  if (options.rest.type == plain.rest.type) return;
  const auto refuse = [&](const char* key, bool given) {
    if (given)
      throw fail(ErrorCode::config, "optimizer/muon: ", key, " is a key of ", plain.rest.type, ", and rest is ",
                 options.rest.type, "; remove it, or set what that optimizer has in rest.params");
  };
  refuse("betas", options.betas != plain.betas);
  refuse("eps", options.eps != plain.eps);
  refuse("bias_correction", options.bias_correction != plain.bias_correction);
}

}  // namespace

OptionTable option_table() {
  TableBuilder<Options> t;
  t.field("lr", &Options::lr, "learning rate of both halves where no scheduler sets one; null: 0.02 and 3e-4")
      .at_least(0)
      .automatic("learning_rate of Hugging Face's Trainer", Value(5e-5));
  t.field("muon_lr", &Options::muon_lr, "learning rate of the matrices; null: lr").at_least(0);
  t.field("adam_lr", &Options::adam_lr, "learning rate of all other parameters; null: lr").at_least(0);
  t.field("momentum", &Options::momentum, "how much of the running mean of a matrix's gradients is kept, below 1")
      .range(0, 1);
  t.field("nesterov", &Options::nesterov, "look one step ahead; DeepSpeed always does");
  add_weight_decay(t);
  t.field("adjust_lr_fn", &Options::adjust_lr_fn,
          "factor of a matrix's rate: the root of max(1, rows / columns), or 0.2 times that of max(rows, columns), "
          "with which rates of AdamW fit")
      .one_of({"original", "match_rms_adamw"});
  t.field("ns_method", &Options::ns_method, "plain iteration, or on X X^T where that is smaller: the same result")
      .one_of({"gram", "standard"});
  t.field("ns_steps", &Options::ns_steps, "steps of the iteration").range(1, 99);
  t.field("ns_coefficients", &Options::ns_coefficients, "of X, (X X^T) X and (X X^T)^2 X").length(3);
  t.field("ns_dtype", &Options::ns_dtype, "type of the iteration").one_of({"bfloat16", "float32"});
  t.field("ns_eps", &Options::ns_eps, "least norm that a matrix is divided by; eps of torch.optim.Muon").at_least(0);
  t.field("per_head_muon", &Options::per_head_muon, "each head of q, k and v is a matrix of its own");
  t.field("betas", &Options::betas, "decay rates of both moments of the other parameters, below 1")
      .length(2)
      .range(0, 1)
      .automatic("adam_beta1 and adam_beta2 of Hugging Face's Trainer", Value(Value::Array{0.9, 0.999}));
  t.field("eps", &Options::eps, "added to the root of their second moment")
      .at_least(0)
      .automatic("adam_epsilon of Hugging Face's Trainer", Value(1e-8));
  t.field("bias_correction", &Options::bias_correction, "divide their moments by 1 - beta^step");
  t.field("rest", &Options::rest, "optimizer of all other parameters; lr, betas and so on are these where it has none");
  t.field("adam_w_mode", &Options::adam_w_mode, "accepted for DeepSpeed's sake: decay is decoupled in both halves");
  t.field("amsgrad", &Options::amsgrad, "only false");
  t.field("torch_adam", &Options::torch_adam, "accepted for DeepSpeed's sake, without effect");
  t.field("fp32_optimizer_states", &Options::fp32_optimizer_states, "only true: momentum and moments are float32");
  for (const char* of_zero : {"reduce_scatter", "save_muon_momentum_buffer_in_memory"})
    t.refused(of_zero, "it is a key of the section zero_optimization, where it changes nothing; remove it");
  t.refused("max_grad_norm", "use gradient_clipping at the top level of the file");
  t.finish([](Options& options) { check(options); });
  return t;
}

PluginChoice rest(const Options& options) {
  PluginChoice rest = options.rest;
  const auto set = [&](const char* key, Value value) {
    if (!rest.params.find(key)) rest.params.set(key, std::move(value));
  };
  set("lr", options.rate_of_rest());
  set("weight_decay", options.weight_decay);
  if (rest.type != Options().rest.type) return rest;  // which has keys of its own
  set("betas", Value(Value::Array{options.betas[0], options.betas[1]}));
  set("eps", options.eps);
  set("decay", options.decay);
  set("bias_correction", options.bias_correction);
  return rest;
}

NewtonSchulz Options::newton_schulz() const {
  NewtonSchulz how;
  std::copy_n(ns_coefficients.begin(), how.coefficients.size(), how.coefficients.begin());
  how.steps = ns_steps, how.epsilon = ns_eps, how.gram = ns_method == "gram";
  return how;
}

double Options::scale(int64_t rows, int64_t columns) const {
  const auto n = static_cast<double>(rows), m = static_cast<double>(columns);
  return adjust_lr_fn == "original" ? std::sqrt(std::max(1.0, n / m)) : 0.2 * std::sqrt(std::max(n, m));
}

}  // namespace drivetrain::muon
