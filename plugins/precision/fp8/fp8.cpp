// Mixed precision with products of 8 bits: what is bfloat16 under precision/bf16 stays so, and the linear layers of
// blocks cast their operands to 8 bits, each tensor with a scale of its own.
//
// Source: Micikevicius et al. 2022, "FP8 formats for deep learning". Options and their meaning are those of NVIDIA's
// Transformer Engine (recipe DelayedScaling and Float8CurrentScaling; fp8_wgrad is Megatron's). Masters, casts to
// bfloat16 and sums are the runtime's.
#include <drivetrain/precision.h>

#include <drivetrain/mesh.h>
#include <drivetrain/schedule.h>

#include "gpu.h"
#include "linear.h"
#include "scaling.h"

#ifdef DRIVETRAIN_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace drivetrain::fp8 {

std::string refusal(const Gpu& gpu, bool blocks) {
  const std::string which = concat("precision/fp8: GPU ", gpu.index, " is sm_", gpu.arch);
  if (gpu.arch < kOldestArch)
    return concat(which, ", and products in 8 bits need sm_", kOldestArch,
                  " or newer (Ada, Hopper, Blackwell). Use \"bf16\": {\"enabled\": true} instead of \"fp8\"");
  if (!blocks) return "";
  const std::string remedy = ". Use \"recipe\": \"Float8CurrentScaling\" or \"DelayedScaling\", or \"bf16\"";
  if (gpu.arch != kArchOfBlocks)
    return concat(which, ", and cuBLASLt multiplies with scales of blocks (Float8BlockScaling) on sm_", kArchOfBlocks,
                  " alone (H100, H200)", remedy);
  if (gpu.cuda < kCudaOfBlocks)
    return concat("precision/fp8: the CUDA runtime is ", gpu.cuda / 1000, ".", gpu.cuda % 1000 / 10,
                  ", and products with scales of blocks (Float8BlockScaling) need ", kCudaOfBlocks / 1000, ".",
                  kCudaOfBlocks % 1000 / 10, " or newer", remedy);
  return "";
}

namespace {

// Why this process' GPU cannot compute so; empty where it can, and where there is none.
std::string problem_of([[maybe_unused]] const at::Device& device, [[maybe_unused]] bool blocks) {
#ifdef DRIVETRAIN_WITH_CUDA
  int count = 0, major = 0, minor = 0;
  Gpu gpu;
  if (!device.is_cuda() || !device.has_index()) return "";
  if (cudaGetDeviceCount(&count) != cudaSuccess || device.index() >= count) {
    (void)cudaGetLastError();  // not to be found again by the next call
    return "";
  }
  gpu.index = device.index();
  for (const cudaError_t status : {cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()),
                                   cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()),
                                   cudaRuntimeGetVersion(&gpu.cuda)})
    if (status != cudaSuccess)
      return concat("precision/fp8: GPU ", gpu.index, " does not say how old it is: ", cudaGetErrorString(status));
  gpu.arch = 10 * major + minor;
  return refusal(gpu, blocks);
#else
  return "";
#endif
}

struct Fp8Options {
  std::string recipe = "DelayedScaling", amax_compute_algo = "max";
  std::optional<std::string> fp8_format;
  int64_t amax_history_len = 1024, margin = 0;
  bool reduce_amax = true, fp8_wgrad = true, check_grad_overflow = true, keep_weights = false;
};

OptionTable fp8_table() {
  return table<Fp8Options>()
      .field("recipe", &Fp8Options::recipe,
             "scales from the steps before, from the tensor at hand, or of its blocks (of GPUs on sm_90 alone)")
      .one_of({"DelayedScaling", "Float8CurrentScaling", "Float8BlockScaling"})
      .field("fp8_format", &Fp8Options::fp8_format,
             "HYBRID: e4m3 forward, e5m2 for gradients; E4M3: e4m3 for all; null: HYBRID, or of blocks E4M3, their "
             "only one")
      .one_of({"HYBRID", "E4M3"})
      .field("margin", &Fp8Options::margin, "powers of two left free above the largest value")
      .range(0, 8)
      .field("amax_history_len", &Fp8Options::amax_history_len, "DelayedScaling: steps that are remembered")
      .range(1, 65536)
      .field("amax_compute_algo", &Fp8Options::amax_compute_algo, "DelayedScaling: which of them gives the scale")
      .one_of({"max", "most_recent"})
      .field("reduce_amax", &Fp8Options::reduce_amax, "only true: ranks with the same layers have the same scales")
      .field("fp8_wgrad", &Fp8Options::fp8_wgrad, "false: the products of weights' gradients stay in bfloat16")
      .field("keep_weights", &Fp8Options::keep_weights,
             "true: weights are cast once per step and kept for it: two bytes per element, on every rank whole")
      .field("check_grad_overflow", &Fp8Options::check_grad_overflow,
             "true: an update whose gradients are not finite is left out; false: it ends the run")
      .finish([](Fp8Options& o) {
        if (!o.reduce_amax)
          throw fail(ErrorCode::config,
                     "precision/fp8: reduce_amax = false is not in this version: scales are the same on all ranks that "
                     "have the same layers; remove it");
        if (o.recipe == "Float8BlockScaling" && o.fp8_format == "HYBRID")
          throw fail(
              ErrorCode::config,
              "precision/fp8: fp8_format = \"HYBRID\" casts gradients to e5m2, and recipe \"Float8BlockScaling\" "
              "has e4m3 alone: LibTorch has no products of e5m2 with scales of blocks. Remove fp8_format, or use "
              "\"recipe\": \"Float8CurrentScaling\" or \"DelayedScaling\"");
      });
}

Recipe recipe_of(const Fp8Options& o) {
  Recipe recipe;
  recipe.delayed = o.recipe == "DelayedScaling", recipe.blocks = o.recipe == "Float8BlockScaling";
  recipe.most_recent = o.amax_compute_algo == "most_recent";
  if (o.fp8_format == "E4M3") recipe.backward = at::kFloat8_e4m3fn;
  recipe.amax_history_len = o.amax_history_len;
  recipe.margin = static_cast<double>(o.margin);
  recipe.wgrad = o.fp8_wgrad, recipe.keep_weights = o.keep_weights;
  return recipe;
}

// "block.0.attn.qkv" of "block.0.attn.qkv.weight"; empty for other parameters.
std::string layer_of(const Param& param) {
  const std::string end = ".weight";
  return param.name.ends_with(end) ? param.name.substr(0, param.name.size() - end.size()) : "";
}

class Fp8 final : public Precision {
 public:
  using Options = Fp8Options;
  static OptionTable options() { return fp8_table(); }

  Fp8(const Options& options, const Services& services)
      : options_(options), services_(services), scaling_(std::make_shared<Scaling>(recipe_of(options))) {}

  void plan(PlanContext& ctx) override {
    ctx.capturable();
    const bool cpu = ctx.run().device == "cpu", blocks = scaling_->recipe().blocks;
    // By its own largest value a tensor is read before it is cast; blocks are held meanwhile.
    const bool once = blocks || scaling_->recipe().delayed;
    const char *const read = once ? ".read_once" : "", *const kept = options_.keep_weights ? ".weights_kept" : "",
                      *const computed = options_.fp8_wgrad ? ".takes_operands" : "";
    ctx.offer(cpu ? "products.float32" : concat("products.float8", blocks ? ".of_blocks" : "", read, kept, computed));
    if (cpu) ctx.cost("on the CPU 8 bits are emulated, exactly and slowly: numbers can be checked, nothing is gained");
    if (ctx.model().mixture.experts > 0)
      ctx.cost("routers, gates of shared experts and the products of experts stay in 16 bits");
    // The plan may be for GPUs of another machine.
    if (const std::string problem = problem_of(services_.device, blocks); !problem.empty())
      ctx.cost("a run on this machine's GPUs is refused: " + problem);
    if (scaling_->recipe().delayed) return;
    const Options usual;
    const auto idle = [&](const char* key, bool given) {
      if (given) ctx.no_effect(concat("fp8.", key), options_.recipe + " remembers nothing");
    };
    if (blocks && options_.margin != 0)
      ctx.no_effect("fp8.margin", "scales of blocks are the largest powers of two that fit");
    idle("amax_history_len", options_.amax_history_len != usual.amax_history_len);
    idle("amax_compute_algo", options_.amax_compute_algo != usual.amax_compute_algo);
  }

  // False: whose parameters these are says the rest.
  bool plan_units(PlanContext& ctx, const PlannedStage& stage) const override {
    if (!options_.keep_weights || !ctx.run().training) return false;
    double elements = 0;
    for (const ParamPtr& param : stage.units.all())
      if (scaling_->has_layer(layer_of(*param))) elements += static_cast<double>(param->layout.local_numel(stage.mesh));
    ctx.memory(MemoryClass::buffers, "weights in 8 bits, as rows and as columns", 2 * elements);
    return false;
  }
  void build(Builder& builder) override { builder.layers = make_layers(builder.layers, scaling_); }

  void attach(UnitList& units) override {
    if (const std::string problem = problem_of(services_.device, scaling_->recipe().blocks); !problem.empty())
      throw fail(ErrorCode::config, problem);
    std::vector<std::string> names;
    for (const ParamPtr& param : units.all())
      if (const std::string layer = layer_of(*param); scaling_->has_layer(layer)) names.push_back(layer);
    std::vector<std::string> peers, parts;
    for (const Axis& axis : services_.mesh->axes()) {
      if (axis.name == Schedule::kAxis) continue;
      peers.push_back(axis.name);
      if (!axis.joins_gradients) parts.push_back(axis.name);
    }
    scaling_->attach(names, services_.mesh->group(peers), services_.mesh->group(parts), services_.device);
  }

  Dtypes dtypes() const override { return {at::kBFloat16, at::kFloat, at::kFloat, at::kFloat}; }
  bool skips_not_finite() const override { return options_.check_grad_overflow; }
  void step_begin(StepContext&) override { scaling_->step_begin(); }
  void step_end(StepContext&) override { scaling_->step_end(); }
  void state(StateVisitor& visitor) override { scaling_->state(visitor); }

 private:
  const Options options_;
  const Services& services_;
  const ScalingPtr scaling_;
};

}  // namespace
}  // namespace drivetrain::fp8

DRIVETRAIN_PLUGIN(drivetrain::Precision, "fp8", drivetrain::fp8::Fp8)
