// The options of the program, each written down once: name, value, help, what is accepted, default. Rows of
// cli/command_table.h are made of them. More than 500 lines because every command's options stand in one place.
#pragma once

#include "cli/command.h"

namespace drivetrain::cli::rows {

constexpr Option with_default(Option option, std::string_view otherwise) {
  option.otherwise = otherwise;
  return option;
}
constexpr Option alone(Option option) {
  option.alone = true;
  return option;
}

inline constexpr Option kSet{.name = "--set",
                             .value = "KEY=VALUE",
                             .help = "change one key of the config, such as optimizer.params.lr=1e-4; may be repeated",
                             .takes = Takes::text,
                             .repeats = true};
inline constexpr Option kDeepSpeed{.name = "--deepspeed",
                                   .value = "FILE",
                                   .help = "read this DeepSpeed file first; what the config says goes before it",
                                   .takes = Takes::file,
                                   .alias = "--deepspeed_config",
                                   .repeats = true};
inline constexpr Option kPluginPath{.name = "--plugin-path",
                                    .value = "DIR",
                                    .help = "look for plugins in this folder first; may be repeated",
                                    .takes = Takes::folder,
                                    .repeats = true};
inline constexpr Option kPlan{.name = "--plan",
                              .help = "show what would run (mesh, placement, memory, traffic) and stop"};
inline constexpr Option kSvg{.name = "--svg",
                             .value = "FILE",
                             .help = "with --plan: draw the schedule of a step into this file",
                             .takes = Takes::file,
                             .needs = "--plan"};
inline constexpr Option kPlanJson{
    .name = "--json", .help = "with --plan: print the plan as one JSON object", .needs = "--plan"};
inline constexpr Option kJson{.name = "--json", .help = "print one JSON object instead of a table"};
inline constexpr Option kSchema{
    .name = "--schema", .help = "print the JSON Schema of the options", .excludes = "--json"};

constexpr Option whole(std::string_view name, std::string_view help, int64_t least = 1) {
  return {.name = name, .value = "N", .help = help, .takes = Takes::whole, .least = least};
}
constexpr Option ranks(std::string_view help, int64_t least = 1) {
  return {.name = "-n", .value = "N", .help = help, .takes = Takes::whole, .counted = "ranks", .least = least};
}
constexpr Option processes(std::string_view help, int64_t least = 1) {
  return {.name = "-n", .value = "N", .help = help, .takes = Takes::whole, .least = least};
}

inline constexpr Option kThreads = whole("--threads", "threads per process; default: the cores, divided evenly");
inline constexpr Option kDevice{.name = "--device",
                                .value = "DEVICE",
                                .help = "device to run on",
                                .takes = Takes::one_of,
                                .choices = "cpu|cuda",
                                .otherwise = "cpu"};
inline constexpr Option kDtype{.name = "--dtype",
                               .value = "TYPE",
                               .help = "data type of the tensors",
                               .takes = Takes::one_of,
                               .choices = "f32|bf16|f16",
                               .otherwise = "f32"};
inline constexpr Option kRounds = whole("--rounds", "how often each case is timed");

// Shape of one attention.
inline constexpr Option kBatch = with_default(whole("--batch", "sequences"), "1");
inline constexpr Option kHeads = with_default(whole("--heads", "number of query heads"), "12");
inline constexpr Option kGroups = whole("--groups", "number of key/value heads; default: as many as --heads");
inline constexpr Option kHeadSize = with_default(whole("--head-size", "size of a head"), "64");
inline constexpr Option kSeq = whole("--seq", "tokens per sequence");

inline constexpr Option kResume{.name = "--resume",
                                .value = "auto|never|TAG",
                                .help =
                                    "go on from the newest checkpoint of output_dir (auto), from this one (a tag such "
                                    "as step-00000040), or refuse a folder that holds a run (never); default: auto, "
                                    "if the config is the one of that run",
                                .takes = Takes::text};

inline constexpr Option kCheckPlugins{
    .name = "--check-plugins",
    .help =
        "look at every call of a step: plugins that change what is not theirs, or forget a gradient, are named; slow",
    .excludes = "--plan"};

inline constexpr Option kTrain[] = {kSet, kDeepSpeed, kResume, kCheckPlugins, kPlan, kSvg, kPlanJson, kPluginPath};

inline constexpr Option kLaunch[] = {
    {.name = "-n",
     .value = "N",
     .help = "ranks on each host; with --hostfile the default is all slots",
     .takes = Takes::whole,
     .otherwise = "1",
     .counted = "ranks",
     .least = 1,
     .most = 4096,
     .alias = "--num_gpus"},
    {.name = "--bench",
     .value = "NAME",
     .help = "time this benchmark on the ranks instead of training",
     .takes = Takes::one_of,
     .choices = "step|collectives|context|checkpoint|hardware",
     .excludes = "--plan"},
    {.name = "--max-restarts",
     .value = "N",
     .help = "after a lost rank, start all ranks again from the newest checkpoint; give "
             "up after N restarts in a row without a newer one",
     .takes = Takes::whole,
     .otherwise = "0",
     .most = 1'000'000,
     .excludes = "--bench"},
    {.name = "--elastic",
     .value = "MIN:MAX",
     .help = "with --max-restarts: go on with fewer ranks, MIN at least, once a rank "
             "failed twice in a row; MAX is what the host has room for, and -n if that "
             "is not given",
     .takes = Takes::text,
     .excludes = "--bench"},
    {.name = "--elastic_training",
     .help = "with --hostfile: after a lost host go on with the hosts that are left; restarts without a newer "
             "checkpoint are 100 unless --max-restarts says otherwise",
     .excludes = "--elastic"},
    {.name = "--min_elastic_nodes",
     .value = "K",
     .help = "with --elastic_training: as few hosts as this; default: 1",
     .takes = Takes::whole,
     .counted = "hosts",
     .least = 1,
     .most = 4096,
     .needs = "--elastic_training"},
    {.name = "--max_elastic_nodes",
     .value = "K",
     .help = "with --elastic_training: hosts that --num_nodes leaves out of the hostfile stand by for lost ones, up to "
             "K hosts in all; default: none",
     .takes = Takes::whole,
     .counted = "hosts",
     .least = 1,
     .most = 4096,
     .needs = "--elastic_training"},
    {.name = "--spare",
     .value = "HOST[:K],...",
     .help = "with --max-restarts and --hostfile: hosts that take the place of lost ones, with room for K ranks each",
     .takes = Takes::text},
    {.name = "--hostfile",
     .value = "FILE",
     .help = "the hosts of the run, a line \"NAME slots=K\" each; ranks are started over ssh",
     .takes = Takes::file,
     .alias = "-H"},
    {.name = "--include",
     .value = "HOSTS",
     .help = "use only these hosts and slots of the hostfile, such as a@b:0,2",
     .takes = Takes::text,
     .alias = "-i",
     .excludes = "--exclude"},
    {.name = "--exclude",
     .value = "HOSTS",
     .help = "use all but these hosts and slots of the hostfile",
     .takes = Takes::text,
     .alias = "-e"},
    {.name = "--num_nodes",
     .value = "K",
     .help = "use the first K hosts of the hostfile",
     .takes = Takes::whole,
     .counted = "hosts",
     .least = 1,
     .most = 4096},
    {.name = "--master_addr",
     .value = "ADDRESS",
     .help = "where rank 0 listens; default: the address of its host that the others reach by route",
     .takes = Takes::text},
    {.name = "--master_port",
     .value = "PORT",
     .help = "the port there; default: a free one",
     .takes = Takes::whole,
     .least = 1,
     .most = 65535},
    {.name = "--launcher",
     .value = "ssh|slurm|openmpi|mpich|none",
     .help =
         "what starts the ranks of other hosts; none: a launch on each of them, with --node_rank; default: slurm in "
         "a job of SLURM, else ssh",
     .takes = Takes::text,
     .otherwise = "ssh"},
    {.name = "--launcher_args",
     .value = "WORDS",
     .help = "options for ssh, srun or mpirun, quoted as one word",
     .takes = Takes::text},
    {.name = "--submit",
     .value = "FILE",
     .help = "write this batch script for SLURM, with --num_nodes and -n, and submit it; with --dry-run: print it",
     .takes = Takes::file,
     .excludes = "--bench"},
    {.name = "--account", .value = "NAME", .help = "the account of SLURM that pays for the job", .takes = Takes::text},
    {.name = "--comment", .value = "TEXT", .help = "a comment on the job, for SLURM", .takes = Takes::text},
    {.name = "--ssh_port",
     .value = "PORT",
     .help = "the port of ssh on every host; default: as its configuration says",
     .takes = Takes::whole,
     .least = 1,
     .most = 65535},
    {.name = "--no_ssh", .help = "start the ranks of this host only; the same command runs on the other hosts"},
    {.name = "--node_rank",
     .value = "I",
     .help = "with --no_ssh: which host of the run this is, from 0",
     .takes = Takes::whole,
     .most = 4095},
    {.name = "--force_multi", .help = "go over ssh even if this host is the only one"},
    {.name = "--copy",
     .value = "DIR",
     .help = "bring this install folder and the config to DIR on every host that does not have them there",
     .takes = Takes::text},
    {.name = "--env",
     .value = "KEY[=VALUE]",
     .help = "give all ranks this variable, with its value here if none is given; may be repeated",
     .takes = Takes::text,
     .repeats = true},
    {.name = "--enable_each_rank_log",
     .value = "DIR",
     .help = "write what rank k prints into DIR/<time of the start>_rank<k>.log on its host, and show only errors",
     .takes = Takes::text},
    {.name = "--save_pid", .help = "while it runs, keep the launcher's pid in /tmp/<pid>.deepspeed"},
    {.name = "--bind_cores_to_rank",
     .help = "give each rank cores of its own, as many threads, and the memory beside them"},
    {.name = "--bind_core_list",
     .value = "CORES",
     .help = "with --bind_cores_to_rank: which cores the ranks of a host share, such as 0,2-4; default: all",
     .takes = Takes::text,
     .needs = "--bind_cores_to_rank"},
    {.name = "--dry-run", .help = "print every command that would run, and where, and stop"}};

inline constexpr Option kInspect[] = {kJson, kSchema, kPluginPath};

inline constexpr Option kConfig[] = {ranks("plan for this many ranks; default: what the config asks for"), kSet,
                                     kDeepSpeed, kPluginPath};
inline constexpr Option kConfigJson[] = {ranks("plan for this many ranks; default: what the config asks for"), kSet,
                                         kDeepSpeed, kPluginPath, kJson};
inline constexpr Option kConfigSchema[] = {kPluginPath};

inline constexpr Option kGenerate[] = {{.name = "--prompt",
                                        .value = "TEXT",
                                        .help = "the text that the sample continues",
                                        .takes = Takes::text,
                                        .required = true},
                                       with_default(whole("--tokens", "how many tokens to add"), "200"),
                                       {.name = "--temperature",
                                        .value = "T",
                                        .help = "higher is more random; 0 takes the most likely token",
                                        .takes = Takes::real,
                                        .otherwise = "0.8"},
                                       with_default(whole("--seed", "seed of the random draws", 0), "1"),
                                       {.name = "--tokenizer",
                                        .value = "FOLDER",
                                        .help = "folder or file of a tokenizer, or the name of one; default: that of "
                                                "the model's folder, and bytes without one",
                                        .takes = Takes::folder},
                                       kPluginPath};

inline constexpr Option kEvaluate[] = {
    kJson,
    {.name = "--output",
     .value = "FILE",
     .help = "write the results there too, as one JSON object in the form of lm-evaluation-harness",
     .takes = Takes::file},
    whole("--limit", "evaluate the first N questions or rows only"),
    with_default(whole("--batch", "rows that are computed together"), "8"),
    {.name = "--tokenizer",
     .value = "FOLDER",
     .help = "folder or file of a tokenizer, or the name of one; default: the set's, else that of the model's folder",
     .takes = Takes::folder},
    kPluginPath};

inline constexpr Option kBenchStep[] = {
    with_default(whole("--steps", "how many steps are timed"), "10"),
    whole("--warmup", "steps before the timed ones; default: 3, on cuda 6", 0),
    {.name = "--trace",
     .value = "FILE",
     .help = "write the last steps of all ranks there, part by part and call by call, "
             "for Perfetto or chrome://tracing",
     .takes = Takes::file},
    kJson,
    kSet,
    kPluginPath,
    alone(whole("--layers", "layers of the model")),
    alone(whole("--hidden", "hidden size of the model")),
    alone(whole("--heads", "attention heads of the model")),
    alone(whole("--vocab", "size of the vocabulary")),
    alone(whole("--batch", "sequences per micro-batch")),
    alone(kSeq),
    {.name = "--dtype",
     .value = "TYPE",
     .help = "data type of the computation; default: the config's",
     .takes = Takes::one_of,
     .choices = "f32|bf16|fp16",
     .alone = true},
    {.name = "--device",
     .value = "DEVICE",
     .help = "device to run on; default: the config's",
     .takes = Takes::one_of,
     .choices = "cpu|cuda",
     .alone = true},
    alone(kThreads)};

inline constexpr Option kBenchKernels[] = {kDtype, kDevice, with_default(kRounds, "10"), kThreads, kJson};

inline constexpr Option kBenchOptimizer[] = {
    with_default(whole("--elements", "number of parameters to update; the default is that of a small model"),
                 "124439808"),
    kDevice,
    with_default(kRounds, "7"),
    kThreads,
    kPluginPath,
    kJson};

inline constexpr Option kBenchAttention[] = {
    kBatch,
    kHeads,
    kGroups,
    kHeadSize,
    with_default(kSeq, "1024"),
    whole("--documents", "also times rows packed with documents of this mean length beside one padded document a row"),
    {.name = "--full", .help = "every token attends to every other one; default: causal, to earlier ones only"},
    kDtype,
    kDevice,
    with_default(kRounds, "15"),
    kThreads,
    kPluginPath,
    kJson};

inline constexpr Option kBenchStartup[] = {processes("processes to start; default: once with 1 and once with 2"),
                                           with_default(kRounds, "5"), kThreads, kJson};

inline constexpr Option kBenchRendezvous[] = {
    ranks("ranks that meet; default: 2, 8, 32, 128 and 512, one after the other", 2), with_default(kRounds, "5"),
    kJson};

inline constexpr Option kBenchPlugins[] = {kPluginPath, kJson};

inline constexpr Option kBenchProducts[] = {{.name = "--shapes",
                                             .value = "MxNxK,...",
                                             .help = "products to time; default: squares and those of known models",
                                             .takes = Takes::text},
                                            kDtype,
                                            kDevice,
                                            with_default(kRounds, "10"),
                                            kThreads,
                                            kJson};

inline constexpr Option kBenchCollectives[] = {
    alone(with_default(processes("processes to start", 2), "2")),
    {.name = "--op",
     .value = "NAME,...",
     .help = "collectives to time; default: all",
     .takes = Takes::some_of,
     .choices = "all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|send_recv"},
    {.name = "--sizes", .value = "BYTES,...", .help = "sizes to time, such as 64K,32M", .takes = Takes::text},
    {.name = "--from",
     .value = "BYTES",
     .help = "smallest size; each next one is four times as large",
     .takes = Takes::text,
     .otherwise = "4K"},
    {.name = "--to", .value = "BYTES", .help = "largest size", .takes = Takes::text, .otherwise = "512M"},
    with_default(kRounds, "10"),
    kDevice,
    {.name = "--communicator",
     .value = "NAME,...",
     .help = "communicator plugins to time; default: the device's own",
     .takes = Takes::text},
    kSet,
    kPluginPath,
    kThreads,
    kJson};

inline constexpr Option kBenchContext[] = {alone(with_default(processes("processes to start", 2), "2")),
                                           kBatch,
                                           kHeads,
                                           kGroups,
                                           kHeadSize,
                                           with_default(kSeq, "4096"),
                                           kDtype,
                                           {.name = "--attention",
                                            .value = "NAME",
                                            .help = "attention plugin of each rank; default: the device's own",
                                            .takes = Takes::text},
                                           with_default(kRounds, "5"),
                                           kDevice,
                                           kPluginPath,
                                           kThreads,
                                           kJson};

inline constexpr Option kBenchCheckpoint[] = {
    with_default(whole("--every", "steps between two saves, and of a block without one"), "10"),
    with_default(kRounds, "5"),
    {.name = "--folder",
     .value = "FOLDER",
     .help = "on the disk to be measured; default: the current folder",
     .takes = Takes::file},
    kSet,
    kPluginPath,
    kJson};

inline constexpr Option kBenchData[] = {
    with_default(whole("--batches", "micro-batches per round"), "200"),
    with_default(whole("--first-step", "the step whose batch is the first, as in a run that goes on there"), "1"),
    with_default(kRounds, "5"),
    kSet,
    kPluginPath,
    kJson};

inline constexpr Option kStore{.name = "--store",
                               .value = "NAME",
                               .help =
                                   "the store that wrote them; default: the one that the run's resolved.json "
                                   "names, without that the default store",
                               .takes = Takes::text};

inline constexpr Option kCheckpoint[] = {kStore, kJson, kPluginPath};

inline constexpr Option kCheckpointDiff[] = {
    {.name = "--tolerance",
     .value = "X",
     .help = "elements and counters that are at most this far apart count as equal; default: every bit counts",
     .takes = Takes::real},
    kStore,
    kJson,
    kPluginPath};

inline constexpr Option kCheckpointAverage[] = {{.name = "--output",
                                                 .value = "FOLDER",
                                                 .help = "new folder for the averaged checkpoint",
                                                 .takes = Takes::folder,
                                                 .required = true},
                                                whole("--last", "average the newest N instead of tags by name", 2),
                                                kStore,
                                                kJson,
                                                kPluginPath};

inline constexpr Option kConvert[] = {
    {.name = "--to",
     .value = "FORMAT",
     .help = "native (a run's folder, in which training goes on), hf, or a checkpoint_format that can write",
     .takes = Takes::text,
     .required = true},
    {.name = "--tag", .value = "TAG", .help = "which checkpoint of FROM; default: its newest", .takes = Takes::text},
    {.name = "--config",
     .value = "CONFIG",
     .help = "with --to native: of the run that goes on; else: has the model, where FROM does not tell its sizes",
     .takes = Takes::file},
    kSet,
    kPluginPath};

inline constexpr Option kTokenizer{
    .name = "--tokenizer",
    .value = "FOLDER",
    .help =
        "folder or file of a tokenizer (tokenizer.json, vocabulary and merges, tokenizer.model), or the name of one",
    .takes = Takes::folder};
constexpr Option required(Option option) {
  option.required = true;
  return option;
}

inline constexpr Option kDataPrepare[] = {
    {.name = "--input",
     .value = "GLOB",
     .help = "files, a folder or a pattern; may be repeated",
     .takes = Takes::file,
     .repeats = true,
     .required = true},
    required(kTokenizer),
    {.name = "--output",
     .value = "PREFIX",
     .help = "where to: PREFIX.bin has the tokens, PREFIX.idx their places",
     .takes = Takes::file,
     .required = true},
    {.name = "--format",
     .value = "FORMAT",
     .help = "jsonl has a document per line, text one per file; auto takes .jsonl, .jsonlines, .ndjson and .json as "
             "jsonl, all else as text",
     .takes = Takes::one_of,
     .choices = "auto|jsonl|text",
     .otherwise = "auto"},
    {.name = "--json-key",
     .value = "KEY",
     .help = "where the text is in a line of JSON",
     .takes = Takes::text,
     .otherwise = "text"},
    {.name = "--append-eod", .help = "end every document with the token that separates documents"},
    {.name = "--eod",
     .value = "TOKEN",
     .help = "that token, where the tokenizer's files do not say it; implies --append-eod",
     .takes = Takes::text},
    {.name = "--skip-broken", .help = "leave out lines that are no JSON or have no text, and count them"},
    whole("--threads", "threads that encode; default: all cores"),
    kPluginPath};

inline constexpr Option kDataShow[] = {
    {.name = "--tokenizer",
     .value = "FOLDER",
     .help = "show the document as text: folder or file of a tokenizer, or the name of one",
     .takes = Takes::folder},
    {.name = "--document",
     .value = "N",
     .help = "show all of this document, from 0; default: the begin of the first",
     .takes = Takes::whole},
    {.name = "--histogram",
     .value = "FILE",
     .help = "draw the lengths of documents into this SVG file",
     .takes = Takes::file},
    kJson,
    kPluginPath};

inline constexpr Option kDataVerify[] = {
    {.name = "--vocab-size", .value = "N", .help = "every id must be below it", .takes = Takes::whole, .least = 1}};

inline constexpr Option kNewPlugin[] = {{.name = "--dir",
                                         .value = "DIR",
                                         .help = "make the plugin's folder, NAME, in this folder",
                                         .takes = Takes::folder,
                                         .otherwise = "."}};

inline constexpr Option kConformance[] = {
    {.name = "--options",
     .value = "JSON",
     .help = "options of the plugin, as in \"params\" of a config; default: none",
     .takes = Takes::text},
    {.name = "--case",
     .value = "PATTERN",
     .help = "run the cases whose names fit, with * and ?; several with : between them",
     .takes = Takes::text},
    {.name = "--list", .help = "name the cases with the sentences of the contract that they hold to, and run none"},
    {.name = "--ranks-multiple",
     .value = "N",
     .help = "the plugin's options allow numbers of ranks that N divides",
     .takes = Takes::whole,
     .least = 1},
    {.name = "--json", .help = "print one JSON object instead of lines"},
    {.name = "--junit", .value = "FILE", .help = "write the results as JUnit XML too", .takes = Takes::file}};

inline constexpr Option kHelp[] = {{.name = "--man", .help = "print the manual page, as `man -l -` reads it"}};

}  // namespace drivetrain::cli::rows
