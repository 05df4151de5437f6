// The runtime's own keys at the top level of a config, as one option table, and the rule of the three batch sizes.
// Sections of plugins stand beside them: sections.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "config/long_context.h"
#include "config/param_groups.h"
#include "internal.h"

namespace drivetrain {

struct PluginSettings {
  std::vector<std::string> paths;  // absolute
  Value allow;                     // null, or an object: file name -> SHA-256 in hex
};

// Numeric types by DeepSpeed's names, where the configuration asks for others than the precision's own; see dtype_of in
// toolkit/dtype_name.h.
struct DataTypes {
  std::optional<std::string> grad_accum, param;
};

// The section `eval`; its sets are read by config/eval_sets.h.
struct EvalSettings {
  bool enabled = true;
  std::optional<int64_t> interval;  // of sets that have none; nothing: eval_interval
  Value sets = Value::object();
};

// Whether steps are recorded and replayed on a device that can: where possible, or an error if not.
enum class Capture { off, on, automatic };

struct RunSettings {
  int64_t train_steps = 0;
  int64_t seed = 1234;
  std::string device = "cpu";                        // "cpu" or "cuda"
  Value capture = "auto";                            // "auto", true or false: see capture_wanted
  std::string float32_matmul_precision = "highest";  // "highest", "high" or "medium"
  Value long_context = false;                        // as given; see long_sequences
  int64_t threads = 0;                               // 0: cores of the host divided by its ranks
  std::string output_dir;                            // absolute once read
  int64_t steps_per_print = 10;
  int64_t eval_interval = 0;  // steps; 0: no evaluation
  int64_t eval_iters = 10;    // batches per evaluation
  EvalSettings eval;
  bool save_final = true;
  std::optional<std::string> save_dtype;  // of final weights; nothing: that of the initial ones
  std::optional<int64_t> train_batch_size, micro_batch_size, accumulation;  // as given; solve_batch completes them
  double gradient_clipping = 1.0;                                           // 0: off
  Value param_groups = Value::array();                                      // as given
  std::optional<int64_t> reduce_every;                                      // see RunFacts
  DataTypes data_types;
  std::optional<std::string> communication_data_type;  // of sums over ranks; nothing: the gradients'
  std::vector<std::string> mesh_order;                 // see solve_mesh
  int64_t rendezvous_timeout_s = 60;
  int64_t hook_timeout_s = 1800;            // 0: never
  std::string damaged_checkpoint = "stop";  // or "previous"
  bool flight_record = true;
  double stall_report_s = 5;      // 0: never
  double straggler_factor = 1.5;  // 0: nobody is looked at
  int64_t straggler_steps = 20;
  double straggler_least_s = 0.1;
  PluginSettings plugins;
  std::vector<AutoValue> settled;  // what the file leaves to rules, for resolved.json
  std::vector<ParamGroup> groups;  // of param_groups
  LongContext long_sequences;      // of long_context
  Position batch_where;            // of the first batch key given
  Position types_where;            // of data_types
  Position mesh_order_where;
};

DRIVETRAIN_INTERNAL const OptionTable& run_settings_table();

// PluginSettings::allow, the digests in lower case.
DRIVETRAIN_INTERNAL std::map<std::string, std::string> read_allow(const Value& allow, Problems& problems);

DRIVETRAIN_INTERNAL Capture capture_wanted(const RunSettings& settings);

// Takes the runtime's keys out of `config` and leaves the rest alone. `config_path` gives the default output folder:
// runs/<its name without .json> below the current folder.
DRIVETRAIN_INTERNAL RunSettings read_run_settings(const Value& config, const std::string& config_path,
                                                  Problems& problems);

// All three in sequences, >= 1, with train_batch_size = micro_batch_size * accumulation * data-parallel ranks.
struct BatchSizes {
  int64_t train_batch_size = 1, micro_batch_size = 1, accumulation = 1;
};

// Takes each "auto" out of `settings`, an object: what two of the sizes leave open follows from them, and the rest has
// the defaults of Hugging Face's Trainer, 8 sequences and 1 micro-batch. `problems` is told.
void settle_batch_sizes(Value& settings, Problems& problems);

// Any two give the third; one of the two sizes alone means accumulation 1. `data_parallel`: ranks that read different
// sequences. A contradiction is added to `problems` with the numbers that would be legal.
DRIVETRAIN_INTERNAL BatchSizes solve_batch(const RunSettings& settings, int64_t data_parallel, Problems& problems);

}  // namespace drivetrain
