#include "drivetrain/commands.h"

#include <algorithm>

#include "config/printable.h"
#include "config/suggest.h"

namespace drivetrain::program {
namespace {

const OptionRule kSet{{"--set"}, "KEY=VALUE", "change the config: --set optimizer.params.lr=1e-4; may be repeated"};
const OptionRule kPlan{{"--plan"}, "", "show what would be run (mesh, layout, memory) and stop"};
const OptionRule kPlanJson{{"--json"}, "", "with --plan: one JSON object instead of text"};
const OptionRule kSvg{{"--svg"}, "FILE", "with --plan: draw the schedule of a step into FILE"};
const OptionRule kPluginPath{{"--plugin-path"}, "DIR", "look for plugins here first; may be repeated"};
const RefusedOption kResume{{"--resume"}, "not in this version: there are no checkpoints yet"};

const char* const kOfContext = "with --bench context: as `bench context` takes it";
const char* const kOfCollectives = "with --bench collectives: as `bench collectives` takes it";

const char* const kOneHost = "not in this version: launch starts the ranks of this host only (-n N)";
const char* const kPython = "not in this version: ranks are `drivetrain train`, no script or module is started";
const char* const kElastic = "not in this version: the number of ranks is fixed (-n N)";

// What users of DeepSpeed's launcher, torchrun and mpirun type.
std::vector<RefusedOption> other_launchers() {
  return {kResume,
          {{"--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num_nodes", "--nnodes", "--node_rank",
            "--force_multi", "--launcher", "--launcher_args", "--no_ssh", "--no_ssh_check", "--ssh_port",
            "--rdzv_endpoint"},
           kOneHost},
          {{"--master_addr", "--master_port"}, "not in this version: launch takes a free port of 127.0.0.1 by itself"},
          {{"--min_elastic_nodes", "--max_elastic_nodes", "--elastic_training"}, kElastic},
          {{"--module", "-m", "--no_python", "--no_local_rank", "--venv_script"}, kPython},
          {{"--save_pid", "--enable_each_rank_log", "--autotuning"}, "not in this version"},
          {{"--bind_cores_to_rank", "--bind_core_list"},
           "not in this version; threads per rank are \"threads\" of the config"},
          {{"--log_level"}, "the level is DRIVETRAIN_LOG=debug|info|warning|error"},
          {{"--nproc_per_node", "-np", "--nproc", "-N"}, "ranks per host are -n N"},
          {{"--deepspeed", "--deepspeed_config", "--local_rank"},
           "give the config file itself: drivetrain launch -n 2 CONFIG"}};
}

// Every benchmark's options; which of them belong to one is the benchmark's to say.
CommandRule bench_rule() {
  return {
      "bench",
      "step|kernels|optimizer|attention|startup|collectives|context [CONFIG] [OPTION]... [--json]",
      "measures training steps and their parts, and says whether the machine was idle",
      1,
      2,
      {{{"--json"}, "", "one object instead of a table"},
       {{"--threads"}, "N", "of this process, default one per core"},
       {{"--steps"}, "N", "step: how many are timed, default 10"},
       {{"--warmup"}, "N", "step: how many go before, default 3, on cuda 6"},
       {{"--layers"}, "N", "step: of the model"},
       {{"--hidden"}, "N", "step: size of the model"},
       {{"--heads"}, "N", "step, attention, context: of the model"},
       {{"--vocab"}, "N", "step: size of the vocabulary"},
       {{"--batch"}, "N", "step, attention, context: sequences of a micro-batch"},
       {{"--seq"}, "N", "step, attention, context: tokens of a sequence"},
       {{"--dtype"}, "TYPE", "step, kernels, attention, context: f32 or bf16; all but step: f16 too"},
       {{"--device"}, "DEVICE", "cpu or cuda"},
       kSet,
       {{"--groups"}, "N", "attention, context: heads of keys and values"},
       {{"--head-size"}, "N", "attention, context: default 64"},
       {{"--full"}, "", "attention: not causal"},
       {{"--elements"}, "N", "optimizer: how many values, default those of GPT-2 124M"},
       {{"--rounds"}, "N", "all but step: how often each is timed"},
       {{"-n"}, "RANKS", "startup, collectives, context: processes, default once with 1 and once with 2; others: 2"},
       {{"--op"},
        "NAME,...",
        "collectives: some of all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv"},
       {{"--sizes"}, "BYTES,...", "collectives: such as 64K,32M"},
       {{"--from"}, "BYTES", "collectives: the smallest size, default 4K; then four times as much, ..."},
       {{"--to"}, "BYTES", "collectives: the largest size, default 512M"},
       {{"--communicator"}, "NAME,...", "collectives: default the device's own"},
       {{"--attention"}, "NAME", "context: default the device's own"},
       kPluginPath},
      {kResume}};
}

std::vector<CommandRule> make_rules() {
  return {{"train",
           "CONFIG [--set KEY=VALUE]... [--plan [--json] [--svg FILE]] [--plugin-path DIR]...",
           "trains as one rank (rank and world come from the launcher's environment)",
           1,
           1,
           {kSet, kPlan, kPlanJson, kSvg, kPluginPath},
           {kResume}},
          {"launch",
           "[-n N] CONFIG|--bench NAME [--set KEY=VALUE]... [--plan [--json] [--svg FILE]] [--plugin-path DIR]...",
           "trains on N ranks of this host",
           0,  // a config, but not for every --bench: launch_request says so
           1,
           {{{"-n", "--num_gpus"}, "N", "ranks per host, default 1"},
            kSet,
            kPlan,
            kSvg,
            kPluginPath,
            {{"--bench"},
             "NAME",
             "step: time the run's steps instead of training; collectives, context: no config, see `bench`"},
            {{"--steps"}, "N", "with --bench step: how many are timed"},
            {{"--warmup"}, "N", "with --bench step: how many go before"},
            {{"--json"}, "", "with --plan or --bench: one JSON object instead of text"},
            {{"--op"}, "NAME,...", kOfCollectives},
            {{"--sizes"}, "BYTES,...", kOfCollectives},
            {{"--from"}, "BYTES", kOfCollectives},
            {{"--to"}, "BYTES", kOfCollectives},
            {{"--communicator"}, "NAME,...", kOfCollectives},
            {{"--batch"}, "N", kOfContext},
            {{"--heads"}, "N", kOfContext},
            {{"--groups"}, "N", kOfContext},
            {{"--head-size"}, "N", kOfContext},
            {{"--seq"}, "N", kOfContext},
            {{"--dtype"}, "TYPE", kOfContext},
            {{"--attention"}, "NAME", kOfContext},
            {{"--rounds"}, "N", "with --bench collectives or context"},
            {{"--device"}, "DEVICE", "with --bench collectives or context"},
            {{"--threads"}, "N", "with --bench collectives or context"}},
           other_launchers()},
          {"inspect",
           "[KIND[/NAME]|FILE.so] [--json|--schema] [--plugin-path DIR]...",
           "what plugins there are, and everything about one",
           0,
           1,
           {{{"--json"}, "", "for scripts"}, {{"--schema"}, "", "JSON Schema of the options"}, kPluginPath},
           {}},
          {"config",
           "check|resolve CONFIG [-n RANKS] [--set KEY=VALUE]... [--plugin-path DIR]...",
           "checks a config, or fills in its defaults, without training",
           2,
           2,
           {{{"-n"}, "RANKS", "plan for this many ranks"}, kSet, kPluginPath},
           {}},
          {"generate",
           "FOLDER --prompt TEXT [--tokens N] [--temperature T] [--seed S] [--plugin-path DIR]...",
           "samples from a run folder or a Hugging Face folder with a byte vocabulary",
           1,
           1,
           {{{"--prompt"}, "TEXT", "what the sample goes on from", true},
            {{"--tokens"}, "N", "how many to add"},
            {{"--temperature"}, "T", "0: always the likeliest"},
            {{"--seed"}, "S", "of the draws"},
            kPluginPath},
           {}},
          bench_rule(),
          {"doctor", "", "", 0, 0, {}, {}},
          {"new-plugin", "", "", 0, 0, {}, {}},
          {"conformance", "", "", 0, 0, {}, {}},
          {"study", "", "", 0, 0, {}, {}},
          {"checkpoint", "", "", 0, 0, {}, {}},
          {"data", "", "", 0, 0, {}, {}}};
}

const std::vector<CommandRule>& command_rules() {
  static const std::vector<CommandRule> rules = make_rules();
  return rules;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

}  // namespace

const CommandRule& find_command(const std::string& name) {
  std::vector<std::string> known;
  for (const CommandRule& rule : command_rules()) {
    if (rule.name == name && rule.summary.empty())
      throw UsageError("\"" + name + "\" is not in this version; see `drivetrain --help`");
    if (rule.name == name) return rule;
    if (!rule.summary.empty()) known.push_back(rule.name);
  }
  throw UsageError("there is no command \"" + shown(name) + "\"" + suggestion(name, known));
}

std::string program_help() {
  std::string text = "drivetrain trains language models from a JSON file.\n\n";
  for (const CommandRule& rule : command_rules())
    if (!rule.summary.empty()) text += "  " + padded(rule.name, 10) + rule.summary + "\n";
  return text +
         "\n  drivetrain COMMAND --help    options of one command\n  drivetrain --version\n\n"
         "environment: DRIVETRAIN_TORCH (folder of LibTorch), DRIVETRAIN_PLUGIN_PATH, DRIVETRAIN_LOG "
         "(debug|info|warning|error),\n"
         "NO_COLOR. Exit codes: 0 done, 1 our own bug, 2 usage or configuration, 3 plugin, 4 out of memory, 5 "
         "communication,\n"
         "6 checkpoint, 7 numeric failure, 8 input or output, 75 preempted, 128+n signal n.\n";
}

std::string command_help(const CommandRule& rule) {
  std::string text = usage_line(rule) + "\n" + rule.summary + "\n";
  for (const OptionRule& option : rule.options) {
    std::string names = join(option.names);
    if (!option.value.empty()) names += " " + option.value;
    text += "  " + padded(names, 22) + option.help + "\n";
  }
  return text;
}

}  // namespace drivetrain::program
