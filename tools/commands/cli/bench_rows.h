// The options of `drivetrain bench`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

// Shape of one attention.
inline constexpr Option kBatch = with_default(whole("--batch", "sequences"), "1");
inline constexpr Option kHeads = with_default(whole("--heads", "number of query heads"), "12");
inline constexpr Option kGroups = whole("--groups", "number of key/value heads; default: as many as --heads");
inline constexpr Option kHeadSize = with_default(whole("--head-size", "size of a head"), "64");
inline constexpr Option kSeq = whole("--seq", "tokens per sequence");

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

}  // namespace drivetrain::cli::rows
