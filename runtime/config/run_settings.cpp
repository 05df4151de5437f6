// The table of the runtime's own keys.
#include "config/run_settings.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/piped.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "base/value_error.h"
#include "config/auto_switches.h"
#include "contract/top_level_keys.h"

namespace drivetrain {
namespace {

OptionTable plugin_settings_table() {
  return table<PluginSettings>()
      .field("paths", &PluginSettings::paths, "folders searched for plugins before all others")
      .path()
      .field("allow", &PluginSettings::allow, "file name -> SHA-256: if given, only these files are loaded");
}

// DeepSpeed's names of types, less those in which nothing can be added up.
constexpr std::initializer_list<const char*> kTypeNames = {"fp32",          "bf16",           "fp16",         "float32",
                                                           "bfloat16",      "float16",        "float",        "half",
                                                           "torch.float32", "torch.bfloat16", "torch.float16"};

OptionTable data_types_table() {
  return table<DataTypes>()
      .field("grad_accum_dtype", &DataTypes::grad_accum,
             "in which gradients are added up over micro-batches; null: as the precision does, float32")
      .one_of(kTypeNames)
      .field("param_dtype", &DataTypes::param, "has to be the precision's; null: is that")
      .one_of(kTypeNames)
      .refused("buffer_dtype", "not in this version: there are no buffers beside parameters");
}

OptionTable eval_settings_table() {
  return table<EvalSettings>()
      .field("enabled", &EvalSettings::enabled, "whether the sets are evaluated during the training")
      .field("interval", &EvalSettings::interval,
             "steps between two evaluations of a set that has no interval of its own; 0: after the last step alone; "
             "null: eval_interval")
      .at_least(0)
      .field("sets", &EvalSettings::sets, "name -> {\"type\", \"params\", \"interval\"} of an evaluation plugin");
}

OptionTable make_run_settings_table() {
  constexpr double kMost = 1LL << 40;  // products of batch sizes stay far from overflow
  using R = RunSettings;
  return table<R>()
      .field("train_steps", &R::train_steps, "optimizer steps")
      .at_least(1)
      .required()
      .field("seed", &R::seed, "everything random follows from it")
      .at_least(0)
      .field("device", &R::device, "where to train")
      .one_of({"cpu", "cuda"})
      .field("capture", &R::capture,
             "record a step on the device and replay it: \"auto\" (where possible), true or false")
      .field("float32_matmul_precision", &R::float32_matmul_precision,
             "PyTorch's: highest multiplies float32 matrices as they are; high and medium by faster products of 16 "
             "bits or "
             "tf32, where the processor has them")
      .one_of({"highest", "high", "medium"})
      .field(
          "long_context", &R::long_context,
          "true: chooses ranks that share a sequence, the MLP in chunks, recompute and offloaded activations as far as "
          "sequences of this length need them to fit the memory; or {\"memory_gib\": of one rank's device}")
      .field("threads", &R::threads, "CPU threads per rank; 0 is cores / ranks of the host")
      .range(0, 1024)
      .field("output_dir", &R::output_dir, "run folder, relative to the current one; default runs/<config name>")
      .field("steps_per_print", &R::steps_per_print, "steps between two lines of the console")
      .at_least(1)
      .field("eval_interval", &R::eval_interval, "steps between two evaluations; 0 is none")
      .at_least(0)
      .field("eval_iters", &R::eval_iters, "batches per evaluation")
      .at_least(1)
      .group("eval", &R::eval, eval_settings_table(),
             "named sets that are evaluated beside the dataset's validation part")
      .field("save_final", &R::save_final, "write the final weights as a Hugging Face folder")
      .field("save_dtype", &R::save_dtype,
             "type of the final weights; null: the one that config.json of model.params.from names, else float32")
      .one_of({"float32", "bfloat16", "float16"})
      .field("train_batch_size", &R::train_batch_size, "sequences per optimizer step over all ranks")
      .range(1, kMost)
      .field("train_micro_batch_size_per_gpu", &R::micro_batch_size, "sequences per forward on one rank")
      .range(1, kMost)
      .field("gradient_accumulation_steps", &R::accumulation, "micro-batches per optimizer step")
      .range(1, kMost)
      .field("gradient_clipping", &R::gradient_clipping, "largest global gradient norm; 0 is off")
      .at_least(0)
      .automatic("max_grad_norm of Hugging Face's Trainer", Value(1.0))
      .field("param_groups", &R::param_groups,
             "list of {\"params\", \"roles\", \"lr\", \"weight_decay\", \"frozen\"}: parameters that have rates of "
             "their own or "
             "are frozen")
      .field("reduce_every", &R::reduce_every,
             "micro-batches added up before their gradients are summed over ranks; 0: all of a step; null: as the "
             "data_parallel plugin does")
      .range(0, kMost)
      .group("data_types", &R::data_types, data_types_table(), "types other than the precision's own")
      .field("communication_data_type", &R::communication_data_type,
             "in which gradients are summed over ranks; null: that of the gradients")
      .one_of(kTypeNames)
      .field("mesh_order", &R::mesh_order,
             "axes of the mesh that come first, fastest first (neighbouring ranks); those left out follow in their "
             "usual order")
      .field("rendezvous_timeout_s", &R::rendezvous_timeout_s, "seconds to wait for the other ranks at the start")
      .range(1, 86400)
      .field("hook_timeout_s", &R::hook_timeout_s,
             "seconds after which a call of a plugin that does not return ends the run; 0 is never; more than the "
             "communicator's timeout_s, which names the rank that is late")
      .range(0, 86400)
      .field("damaged_checkpoint", &R::damaged_checkpoint,
             "what a run that goes on does where its newest checkpoint is damaged: stop and name it, or say so and go "
             "on from the newest of which every byte is as it was written, for starts that nobody watches")
      .one_of({"stop", "previous"})
      .field("flight_record", &R::flight_record,
             "whether each rank keeps a record of its last collectives, for `drivetrain flight` and for stall_report_s")
      .field(
          "stall_report_s", &R::stall_report_s,
          "seconds without progress in a step, or three steps where those are longer, within which a line says which "
          "rank holds the run up, and where; twelve times as long outside of steps; 0 is never")
      .at_least(0)
      .field(
          "straggler_factor", &R::straggler_factor,
          "times the median own work of the ranks that do the same on other rows, from which on a rank is named as a "
          "straggler, once, with the part of the step in which it loses its time; 0 is never")
      .range(0, 1e6)
      .field("straggler_steps", &R::straggler_steps, "over so many of the last steps, in half of them at least")
      .range(1, 1000)
      .field("straggler_least_s", &R::straggler_least_s,
             "seconds a step, on average over these steps, that a straggler is behind the median at least")
      .at_least(0)
      .group("plugins", &R::plugins, plugin_settings_table(), "where plugins come from");
}

void check_capture(const Value& capture, Problems& problems) {
  if (capture.is_bool() || (capture.is_string() && capture.as_string() == "auto")) return;
  const std::string meant = capture.is_string() ? did_you_mean(capture.as_string(), {"auto"}) : std::string();
  problems.add(capture.where, concat("capture: expected \"auto\", true or false, found ",
                                     capture.is_string() ? short_json(capture) : capture.type_name(), meant,
                                     meant.empty() ? boolean_hint(capture) : ""));
}

void check_straggler_factor(const Value& config, double factor, Problems& problems) {
  if (factor == 0 || factor > 1) return;
  const Value* const given = config.find("straggler_factor");
  problems.add(given ? given->where : config.where,
               concat("straggler_factor: expected more than 1, or 0 for never, found ", factor,
                      ": half of the ranks are slower than their median"));
}

// DeepSpeed has clipped what says nothing since 2026; before, it did not.
void settle_clipping(Value& own, Problems& problems) {
  const OptionField& field = *run_settings_table().find("gradient_clipping");
  const Value* const given = own.find(field.name);
  if (!given || given->is_null())
    return problems.resolve({}, field.name, "1.0", "no such key: DeepSpeed's default; 0 is off");
  if (!is_auto(given)) return;
  Value value(1.0);
  value.where = given->where, value.key_where = given->key_where;
  problems.resolve(given->where, field.name, "1.0", "\"auto\": " + field.auto_rule);
  own.set(field.name, std::move(value));
}

std::string default_output(const std::string& config_path) {
  std::filesystem::path name = is_piped(config_path) ? kPipedName : std::filesystem::path(config_path).filename();
  if (name.extension() == ".json") name.replace_extension();
  return (std::filesystem::path("runs") / name).string();
}

}  // namespace

const OptionTable& run_settings_table() {
  static const OptionTable* const table = new OptionTable(make_run_settings_table());
  return *table;
}

bool is_top_level_key(const std::string& key) { return run_settings_table().find(key) != nullptr; }

std::map<std::string, std::string> read_allow(const Value& allow, Problems& problems) {
  std::map<std::string, std::string> digests;
  if (allow.is_object()) {
    for (const Value::Member& m : allow.members()) {
      const std::string digest = m.value.is_string() ? lower_case(m.value.as_string()) : "";
      if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string::npos)
        problems.add(m.value.where, concat("plugins.allow.", shown(m.key),
                                           ": expected 64 hexadecimal digits (SHA-256), found ", describe(m.value)));
      digests[m.key] = digest;
    }
  } else if (!allow.is_null()) {
    problems.add(allow.where,
                 concat("plugins.allow: expected an object of file name and SHA-256, found ", describe(allow)));
  }
  return digests;
}

Capture capture_wanted(const RunSettings& settings) {
  if (!settings.capture.is_bool()) return Capture::automatic;
  return settings.capture.as_bool() ? Capture::on : Capture::off;
}

RunSettings read_run_settings(const Value& config, const std::string& config_path, Problems& problems) {
  const OptionTable& table = run_settings_table();
  Value own = Value::object();
  own.where = config.where;
  Position batch_where, types_where = config.where, order_where = config.where;
  for (const Value::Member& m : config.members()) {
    if (!table.find(m.key)) continue;
    own.members().push_back(m);
    const bool is_batch = m.key.find("batch_size") != std::string::npos || m.key == "gradient_accumulation_steps";
    if (m.key == "data_types") types_where = m.value.key_where;
    if (m.key == "mesh_order") order_where = m.value.key_where;
    if (is_batch && batch_where.file.empty()) batch_where = m.value.key_where;
  }
  settle_batch_sizes(own, problems);
  settle_clipping(own, problems);
  RunSettings settings = *std::static_pointer_cast<RunSettings>(table.parse(own, "the run", "", problems));
  settings.batch_where = batch_where.file.empty() ? config.where : batch_where;
  settings.types_where = types_where;
  settings.mesh_order_where = order_where;
  settings.groups = read_param_groups(settings.param_groups, problems);
  settings.long_sequences = read_long_context(settings.long_context, problems);
  read_allow(settings.plugins.allow, problems);
  check_capture(settings.capture, problems);
  check_straggler_factor(config, settings.straggler_factor, problems);
  if (settings.output_dir.empty()) settings.output_dir = default_output(config_path);
  settings.output_dir = std::filesystem::absolute(settings.output_dir).lexically_normal().string();
  return settings;
}

}  // namespace drivetrain
