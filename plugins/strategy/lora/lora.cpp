// Freezes the model's own weights and puts adapters beside the linear layers that the options name.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/services.h>
#include <drivetrain/strategy.h>
#include <drivetrain/toolkit/not_recorded.h>
#include <drivetrain/toolkit/text.h>

#include "factory.h"
#include "facts.h"
#include "options.h"
#include "peft_folder.h"

namespace {

using namespace drivetrain;

class Lora : public Strategy {
 public:
  using Options = lora::Options;
  static OptionTable options() { return lora::option_table(); }
  Lora(const Options& options, const Services& services) : options_(options), services_(services) {}

  void plan(PlanContext& ctx) override {
    training_ = ctx.run().training;
    if (*options_.dropout == 0)
      ctx.capturable();
    else
      ctx.offer(concat(toolkit::kNotRecorded, "lora_dropout (dropout) ", *options_.dropout,
                       " takes numbers that the host chooses in every step; 0 needs none"));
    if (const ModelFacts::Mixture& m = ctx.model().mixture; m.experts > 0)
      ctx.cost(concat("routers and experts get no adapters: those of ", m.layers, " layers stay as they are"));
    if (const std::vector<std::string> idle = options_.without_effect(); training_ && !idle.empty())
      ctx.no_effect(join(idle), "PEFT writes them into adapter_config.json, and no run here depends on them");
    if (!built_) return;
    targets_->check_all_found();
    for (const std::string& problem : targets_->problems()) ctx.refuse(problem);
    if (options_.from.empty() || !targets_->problems().empty()) return;
    try {
      check_from();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::config) throw;
      ctx.refuse(concat("from: ", e.what()));
    }
  }

  void build(Builder& builder) override {
    targets_ =
        std::make_shared<lora::Targets>(options_, builder.weight_rules ? builder.weight_rules("hf") : WeightRules());
    builder.layers = std::make_shared<lora::AdaptedLayers>(builder.layers, targets_, made_, options_, builder.mesh);
    built_ = true;
  }

  void attach(UnitList& units) override {
    std::map<const Param*, std::shared_ptr<lora::AdaptedLinear>> layers;
    for (const auto& one : made_->layers) layers[one.weight.get()] = one.layer;
    layers_of_unit_.resize(units.units.size());
    for (size_t u = 0; u < units.units.size(); ++u)
      for (const ParamPtr& param : units.units[u]->params()) {
        if (const auto found = layers.find(param.get()); found != layers.end())
          layers_of_unit_[u].push_back(found->second);
        // What no factory made.
        if (param->role != ParamRole::adapter) param->trainable = targets_->trained_whole(param->name);
      }
    tell(units);
  }

  void change_facts(ModelFacts& facts) const override { lora::change_facts(options_, facts); }

  void before_forward(const Visit& visit, StepContext& ctx) override { set_keys(visit, ctx); }
  void before_backward(const Visit& visit, StepContext& ctx) override { set_keys(visit, ctx); }

  std::vector<WeightFolder> weight_folders() const override {
    if (!options_.writes_adapter() && options_.from.empty()) return {};
    WeightFolder folder;
    folder.name = options_.writes_model() ? "adapter" : "";
    folder.weights_file = lora::kWeightsFile, folder.config_file = lora::kConfigFile;
    folder.rules = rules();
    folder.from = options_.from;
    folder.written = options_.writes_adapter();
    return {folder};
  }

  bool exports_model() const override { return options_.writes_model(); }

  // W + scale * B A, in float32.
  at::Tensor merge(const Param& param, const at::Tensor& value, const WholeParam& whole) const override {
    at::Tensor merged = value;
    for (const auto& one : made_->layers) {
      if (one.weight->name != param.name) continue;
      merged = value.clone();
      for (const lora::Adapter& adapter : one.adapters) {
        const lora::Module& module = adapter.wish.module;
        const at::Tensor a = whole(adapter.a->name), b = whole(adapter.b->name);
        merged.narrow(0, module.first, module.rows).addmm_(b, a, 1, adapter.wish.scale);
      }
    }
    return merged;
  }

 private:
  void set_keys(const Visit& visit, StepContext& ctx) {
    for (const auto& layer : layers_of_unit_.at(static_cast<size_t>(visit.unit))) layer->set_keys(ctx);
  }

  WeightRules rules() const {
    WeightRules rules;
    rules.prefix = lora::kPrefix;
    bool transposed = false;
    for (const auto& one : made_->layers)
      for (const lora::Adapter& adapter : one.adapters) {
        const lora::Module& module = adapter.wish.module;
        rules.rules.push_back({adapter.a->name, {{module.path + ".lora_A.weight", adapter.wish.rank}}, false});
        rules.rules.push_back({adapter.b->name, {{module.path + ".lora_B.weight", module.rows}}, false});
        transposed = transposed || module.transposed;
      }
    for (WeightRule& rule : targets_->whole_rules()) rules.rules.push_back(std::move(rule));
    rules.config = lora::written_config(options_, targets_->written_targets(), transposed);
    return rules;
  }

  void check_from() const {
    lora::Shapes shapes;
    for (const auto& one : made_->layers)
      for (const lora::Adapter& adapter : one.adapters) {
        shapes[adapter.wish.module.path + ".lora_A.weight"] = adapter.a->layout.global_shape;
        shapes[adapter.wish.module.path + ".lora_B.weight"] = adapter.b->layout.global_shape;
      }
    std::vector<std::string> further;
    for (const WeightRule& rule : targets_->whole_rules())
      for (const WeightPart& part : rule.parts) further.push_back(part.name);
    lora::check_tensors(options_.from, shapes, further);
  }

  // A sample on standard output stays what it is.
  void tell(const UnitList& units) const {
    int64_t trained = 0, all = 0, adapters = 0;
    for (const ParamPtr& param : units.all()) {
      const int64_t count = param->layout.global_numel();
      all += count, trained += param->trainable ? count : 0;
    }
    for (const auto& layers : layers_of_unit_) adapters += std::ssize(layers);
    services_.log.write(
        training_ ? LogLevel::info : LogLevel::debug,
        concat(
            "strategy/lora: ", adapters, " linear layers with adapters; trains ", trained, " of ", all, " parameters (",
            formatted("%.2f %%", 100.0 * static_cast<double>(trained) / static_cast<double>(std::max<int64_t>(all, 1))),
            ")", services_.mesh && services_.mesh->size("pp") > 1 ? " of this stage" : ""));
  }

  const Options options_;
  const Services& services_;
  const std::shared_ptr<lora::Made> made_ = std::make_shared<lora::Made>();
  std::shared_ptr<lora::Targets> targets_;
  std::vector<std::vector<std::shared_ptr<lora::AdaptedLinear>>> layers_of_unit_;
  bool training_ = true, built_ = false;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Strategy, "lora", Lora)
