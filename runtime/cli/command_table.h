// The commands of the program: the one table that the parser, help, the manual page, completion and the commands' code
// read. An option under `launch --bench NAME` is the benchmark's own row.
#pragma once

#include <string_view>

#include "cli/option_rows.h"

namespace drivetrain::cli {
namespace rows {

inline constexpr RefusedOptions kNoResume[] = {{"--resume", "a benchmark always begins anew"}};

// What users of DeepSpeed's launcher, torchrun and mpirun type.
inline constexpr RefusedOptions kOtherLaunchers[] = {
    {"--hostfile -H --include -i --exclude -e --num_nodes --nnodes --node_rank --force_multi --launcher "
     "--launcher_args "
     "--no_ssh --no_ssh_check --ssh_port --rdzv_endpoint",
     "not in this version: launch starts the ranks of this host only (-n N)"},
    {"--master_addr --master_port", "not in this version: launch takes a free port of 127.0.0.1 by itself"},
    {"--min_elastic_nodes --max_elastic_nodes --elastic_training",
     "not in this version: --elastic MIN:MAX is for the ranks of this host"},
    {"--module -m --no_python --no_local_rank --venv_script",
     "not in this version: ranks are `drivetrain train`, no script or module is started"},
    {"--save_pid --enable_each_rank_log --autotuning", "not in this version"},
    {"--bind_cores_to_rank --bind_core_list", "not in this version; threads per rank are \"threads\" of the config"},
    {"--log_level", "the level is DRIVETRAIN_LOG=debug|info|warning|error"},
    {"--nproc_per_node -np --nproc -N", "ranks per host are -n N"},
    {"--deepspeed --deepspeed_config --local_rank", "give the config file itself: drivetrain launch -n 2 CONFIG"}};

constexpr Command bench(std::string_view name, std::string_view summary, std::span<const Option> options,
                        bool under_launch = false) {
  return {.name = name, .summary = summary, .options = options, .refused = kNoResume, .under_launch = under_launch};
}
constexpr Command not_yet(std::string_view name, std::string_view instead = "-") {
  return {.name = name, .not_yet = instead};
}

}  // namespace rows

inline constexpr Command kCommands[] = {
    {.name = "train",
     .summary = "trains a model as one rank; the launcher's environment gives rank and world size",
     .words = "CONFIG",
     .takes = Takes::file,
     .least = 1,
     .most = 1,
     .options = rows::kTrain},
    {.name = "launch",
     .summary = "trains a model on N ranks of this host, or times a benchmark on them",
     .words = "CONFIG",
     .takes = Takes::file,
     .least = 0,  // some benchmarks need no config: launch says when one is missing
     .most = 1,
     .options = rows::kLaunch,
     .refused = rows::kOtherLaunchers},
    {.name = "inspect",
     .summary = "lists the plugins, or shows everything about one plugin or one file",
     .words = "[KIND[/NAME]|FILE.so]",
     .takes = Takes::file,
     .most = 1,
     .options = rows::kInspect},
    {.name = "config", .summary = "reads a config without training"},
    {.name = "config check",
     .summary = "names every problem of a config, with line and column",
     .words = "CONFIG",
     .takes = Takes::file,
     .least = 1,
     .most = 1,
     .options = rows::kConfig},
    {.name = "config resolve",
     .summary = "prints a config with every default filled in",
     .words = "CONFIG",
     .takes = Takes::file,
     .least = 1,
     .most = 1,
     .options = rows::kConfig},
    rows::not_yet("config explain", "`drivetrain inspect KIND/NAME` shows the options of a plugin"),
    rows::not_yet("config schema", "`drivetrain inspect KIND/NAME --schema` prints the schema of a plugin"),
    {.name = "generate",
     .summary = "samples text from a run folder or a Hugging Face folder with a byte vocabulary",
     .words = "FOLDER",
     .takes = Takes::folder,
     .least = 1,
     .most = 1,
     .options = rows::kGenerate},
    {.name = "checkpoint", .summary = "looks into the checkpoints of a run, and converts those of other programs"},
    {.name = "checkpoint list",
     .summary = "lists the checkpoints of a run: step, time, size, figures, complete or damaged",
     .words = "FOLDER",
     .takes = Takes::folder,
     .least = 1,
     .most = 1,
     .options = rows::kCheckpoint},
    {.name = "checkpoint verify",
     .summary = "checks every byte of one checkpoint or of all; exit code 6 if one is damaged",
     .words = "FOLDER [TAG]",
     .takes = Takes::folder,
     .least = 1,
     .most = 2,
     .options = rows::kCheckpoint},
    {.name = "checkpoint show",
     .summary = "shows facts and tensors of a checkpoint, or values of the tensors called NAME, which may be a pattern",
     .words = "FOLDER [TAG|newest] [NAME]",
     .takes = Takes::folder,
     .least = 1,
     .most = 3,
     .options = rows::kCheckpoint},
    {.name = "checkpoint diff",
     .summary = "compares two checkpoints of any topologies; exit code 0 if their states are equal, 1 if not",
     .words = "FOLDER_A[:TAG] FOLDER_B[:TAG]",
     .takes = Takes::folder,
     .least = 2,
     .most = 2,
     .options = rows::kCheckpointDiff},
    {.name = "checkpoint average",
     .summary = "saves the mean of the weights of several checkpoints as a new one",
     .words = "FOLDER TAG TAG...",
     .takes = Takes::folder,
     .least = 1,
     .most = 1000,
     .options = rows::kCheckpointAverage},
    {.name = "checkpoint convert",
     .summary = "writes a checkpoint, of this or another program, in another format",
     .words = "FROM TO",
     .takes = Takes::folder,
     .least = 2,
     .most = 2,
     .options = rows::kConvert},
    {.name = "bench", .summary = "measures the program and its parts, and says whether the machine was idle"},
    {.name = "bench step",
     .summary = "times whole training steps by phase, and their matrix products alone for comparison",
     .words = "[CONFIG]",
     .takes = Takes::file,
     .most = 1,
     .options = rows::kBenchStep,
     .refused = rows::kNoResume,
     .under_launch = true},
    rows::bench("bench kernels", "times every kernel against the memory bandwidth at its size", rows::kBenchKernels),
    rows::bench("bench optimizer", "times norm, clipping, update and zeroing of every optimizer against LibTorch",
                rows::kBenchOptimizer),
    rows::bench("bench attention", "times every attention forward and backward against LibTorch's own",
                rows::kBenchAttention),
    rows::bench("bench startup", "times from exec to the end of step 1, as a multiple of loading LibTorch",
                rows::kBenchStartup),
    rows::bench("bench collectives", "times every collective of a communicator over sizes: algorithm and bus bandwidth",
                rows::kBenchCollectives, true),
    rows::bench("bench context", "times attention over a sequence that is split over ranks against one rank alone",
                rows::kBenchContext, true),
    {.name = "bench checkpoint",
     .summary = "times training with saves and without, and the store's writes and loads against the plain disk",
     .words = "[CONFIG]",
     .takes = Takes::file,
     .most = 1,
     .options = rows::kBenchCheckpoint,
     .refused = rows::kNoResume,
     .under_launch = true},
    {.name = "completion",
     .summary = "prints a script that completes commands, options and values in a shell",
     .words = "bash|zsh",
     .takes = Takes::one_of,
     .choices = "bash|zsh",
     .least = 1,
     .most = 1},
    {.name = "help",
     .summary = "shows the commands, or the options of one command",
     .words = "[COMMAND]",
     .takes = Takes::command,
     .most = 2,
     .options = rows::kHelp},
    rows::not_yet("doctor"),
    rows::not_yet("new-plugin"),
    rows::not_yet("conformance"),
    rows::not_yet("data"),
    rows::not_yet("evaluate"),
    rows::not_yet("plan", "`drivetrain train CONFIG --plan` shows memory and traffic before a run"),
    rows::not_yet("study"),
    rows::not_yet("flight"),
    rows::not_yet("agent")};

constexpr bool any_command_has_option(std::string_view name) {
  for (const Command& command : kCommands)
    for (const Option& option : command.options)
      if (option.name == name) return true;
  return false;
}

}  // namespace drivetrain::cli
