// The commands of the program: the one table that the parser, help, the manual page, completion and the commands' code
// read. An option under `launch --bench NAME` is the benchmark's own row.
#pragma once

#include <string_view>

#include "cli/bench_rows.h"
#include "cli/data_rows.h"
#include "cli/doctor_rows.h"
#include "cli/flight_rows.h"
#include "cli/launch_rows.h"
#include "cli/option_rows.h"
#include "cli/plan_rows.h"
#include "cli/study_rows.h"

namespace drivetrain::cli {
namespace rows {

inline constexpr RefusedOptions kNoResume[] = {{"--resume", "a benchmark always begins anew"}};

// What users of DeepSpeed's launcher, torchrun and mpirun type.
inline constexpr RefusedOptions kOtherLaunchers[] = {
    {"--nnodes", "the number of hosts is --num_nodes K, with --hostfile FILE"},
    {"--rdzv_endpoint --rdzv_backend --rdzv_id", "where rank 0 listens is --master_addr and --master_port"},
    {"--no_ssh_check", "launch logs in to all hosts at once and starts no rank before each has answered"},
    {"--num_accelerators", "ranks per host are -n N"},
    {"--module -m --no_python --no_local_rank --venv_script",
     "not in this version: ranks are `drivetrain train`, no script or module is started"},
    {"--autotuning", "not in this version"},
    {"--log_level", "the level is DRIVETRAIN_LOG=debug|info|warning|error"},
    {"--nproc_per_node -np --nproc -N", "ranks per host are -n N"},
    {"--local_rank", "each rank has its own: drivetrain launch -n 2 CONFIG"}};

constexpr Command bench(std::string_view name, std::string_view summary, std::span<const Option> options,
                        bool under_launch = false) {
  return {.name = name, .summary = summary, .options = options, .refused = kNoResume, .under_launch = under_launch};
}

}  // namespace rows

inline constexpr Command kCommands[] = {
    command("train", "trains a model as one rank; the launcher's environment gives rank and world size", rows::kTrain)
        .with_words("CONFIG", Takes::file, 1, 1),
    command("launch", "trains a model on N ranks of this host, or of several hosts, or times a benchmark on them",
            rows::kLaunch)
        .with_words("CONFIG", Takes::file, 0, 1)  // some benchmarks need none: launch says when it is missing
        .without(rows::kOtherLaunchers),
    command("inspect", "lists the plugins, or shows everything about one plugin or one file", rows::kInspect)
        .with_words("[KIND[/NAME]|FILE.so]", Takes::file, 0, 1),
    command("config", "reads a config without training"),
    command("config check", "names every problem of each config, with line and column, and every note of a run's start",
            rows::kConfigJson)
        .with_words("CONFIG...", Takes::file, 1, 100000),
    command("config resolve", "prints a config with every default filled in", rows::kConfig)
        .with_words("CONFIG", Takes::file, 1, 1),
    command(
        "config explain",
        "what a key means here and in DeepSpeed, its default and range; with a config, its value there and from where",
        rows::kConfigJson)
        .with_words("KEY [CONFIG]", Takes::file, 1, 2),
    command("config schema", "prints the JSON Schema of a config with the plugins that are installed, for editors",
            rows::kConfigSchema),
    command("config diff", "compares what two configs ask for, with every default filled in; exit code 1 if it differs",
            rows::kConfigJson)
        .with_words("CONFIG CONFIG", Takes::file, 2, 2),
    command("generate", "samples text from a run folder or a Hugging Face folder", rows::kGenerate)
        .with_words("FOLDER", Takes::folder, 1, 1),
    command("evaluate",
            "computes perplexity or multiple choice of a run folder or a Hugging Face folder; SET is a set of the "
            "run's section \"eval\", an entry in JSON, or a file of text or questions",
            rows::kEvaluate)
        .with_words("FOLDER SET", Takes::file, 2, 2),
    command("checkpoint", "looks into the checkpoints of a run, and converts those of other programs"),
    command("checkpoint list", "lists the checkpoints of a run: step, time, size, figures, complete or damaged",
            rows::kCheckpoint)
        .with_words("FOLDER", Takes::folder, 1, 1),
    command("checkpoint verify", "checks every byte of one checkpoint or of all; exit code 6 if one is damaged",
            rows::kCheckpoint)
        .with_words("FOLDER [TAG]", Takes::folder, 1, 2),
    command("checkpoint show",
            "shows facts and tensors of a checkpoint, or values of the tensors called NAME, which may be a pattern",
            rows::kCheckpoint)
        .with_words("FOLDER [TAG|newest] [NAME]", Takes::folder, 1, 3),
    command("checkpoint diff",
            "compares two checkpoints of any topologies; exit code 0 if their states are equal, 1 if not",
            rows::kCheckpointDiff)
        .with_words("FOLDER_A[:TAG] FOLDER_B[:TAG]", Takes::folder, 2, 2),
    command("checkpoint average", "saves the mean of the weights of several checkpoints as a new one",
            rows::kCheckpointAverage)
        .with_words("FOLDER TAG TAG...", Takes::folder, 1, 1000),
    command("checkpoint convert", "writes a checkpoint, of this or another program, in another format", rows::kConvert)
        .with_words("FROM TO", Takes::folder, 2, 2),
    command("data", "turns texts into token files, and shows and checks these"),
    command("data prepare",
            "writes PREFIX.bin and PREFIX.idx from JSON lines and texts; goes on where a killed one stopped",
            rows::kDataPrepare),
    command("data show", "shows documents, tokens and lengths of token files, and a document", rows::kDataShow)
        .with_words("PREFIX", Takes::file, 1, 1),
    command("data verify",
            "checks every rule of the form of token files, and the range of every id; exit code 8 if one is broken",
            rows::kDataVerify)
        .with_words("PREFIX", Takes::file, 1, 1),
    command("bench", "measures the program and its parts, and says whether the machine was idle"),
    rows::bench("bench step", "times whole training steps by phase, and their matrix products alone for comparison",
                rows::kBenchStep, true)
        .with_words("[CONFIG]", Takes::file, 0, 1),
    rows::bench("bench kernels", "times every kernel against the memory bandwidth at its size", rows::kBenchKernels),
    rows::bench("bench products", "times matrix products over shapes: the highest rate that can be reached here",
                rows::kBenchProducts),
    rows::bench("bench optimizer", "times norm, clipping, update and zeroing of every optimizer against LibTorch",
                rows::kBenchOptimizer),
    rows::bench("bench attention", "times every attention forward and backward against LibTorch's own",
                rows::kBenchAttention),
    rows::bench("bench startup", "times from exec to the end of step 1, as a multiple of loading LibTorch",
                rows::kBenchStartup),
    rows::bench("bench rendezvous", "times until all ranks of a run have met, with up to 512 threads as ranks",
                rows::kBenchRendezvous),
    rows::bench("bench plugins", "times reading the manifests of all plugins and opening each library",
                rows::kBenchPlugins),
    rows::bench("bench collectives", "times every collective of a communicator over sizes: algorithm and bus bandwidth",
                rows::kBenchCollectives, true),
    rows::bench("bench context", "times attention over a sequence that is split over ranks against one rank alone",
                rows::kBenchContext, true),
    rows::bench("bench checkpoint",
                "times training with saves and without, and the store's writes and loads against the plain disk",
                rows::kBenchCheckpoint, true)
        .with_words("[CONFIG]", Takes::file, 0, 1),
    rows::bench("bench hardware", "measures what ranks of this machine reach, as a file for `plan --hardware`",
                rows::kBenchHardware, true),
    rows::bench("bench data", "times how the dataset of a config begins, and how fast it gives batches",
                rows::kBenchData)
        .with_words("CONFIG", Takes::file, 1, 1),
    command("doctor",
            "says whether this machine, a plugin, a config or the hosts of a hostfile are good to run, and what to do "
            "about what is not",
            rows::kDoctor),
    command("flight", "says what every rank of a run that hangs or has died did last, and which one held the others up",
            rows::kFlight)
        .with_words("DIR", Takes::folder, 1, 1),
    command("completion", "prints a script that completes commands, options and values in a shell", rows::kCompletion)
        .with_words("bash|zsh", Takes::one_of, 1, 1)
        .with_choices("bash|zsh"),
    command("help", "shows the commands, or the options of one command", rows::kHelp)
        .with_words("[COMMAND]", Takes::command, 0, 2),
    command("new-plugin",
            "makes a folder with a plugin of a kind that builds, passes its suite and trains, to begin with",
            rows::kNewPlugin)
        .with_words("KIND NAME", Takes::text, 2, 2),
    command("conformance", "runs the suite of its kind over every plugin of a library, or over one", rows::kConformance)
        .with_words("FILE.so [KIND/NAME]", Takes::file, 1, 2),
    command("plan",
            "says before a run what memory it needs, whether it fits a machine and how long a step takes there; looks "
            "for the fastest way that fits; holds published tables against the same model",
            rows::kPlanCommand)
        .with_words("[CONFIG]", Takes::file, 0, 1),
    command("study",
            "runs a study: a config under crossed changes, with a ledger, statistics and a report; `study compare A "
            "B`: the cells that the studies in two folders share; `study merge A B --into C`: two studies of one base "
            "as one; `study report FOLDER`: its report again",
            rows::kStudy)
        .with_words("FILE|compare A B|merge A B|report FOLDER", Takes::file, 1, 3),
    command("agent", "what launch runs on each host of a run over ssh; it takes its orders from its standard input")};

constexpr bool any_command_has_option(std::string_view name) {
  for (const Command& command : kCommands)
    for (const Option& option : command.options)
      if (option.name == name) return true;
  return false;
}

}  // namespace drivetrain::cli
