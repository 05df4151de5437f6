// The options of `drivetrain bench`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

// Shape of one attention.
inline constexpr Option kBatch = whole("--batch", "sequences").by_default("1");
inline constexpr Option kHeads = whole("--heads", "number of query heads").by_default("12");
inline constexpr Option kGroups = whole("--groups", "number of key/value heads; default: as many as --heads");
inline constexpr Option kHeadSize = whole("--head-size", "size of a head").by_default("64");
inline constexpr Option kSeq = whole("--seq", "tokens per sequence");

inline constexpr Option kBenchStep[] = {
    whole("--steps", "how many steps are timed").by_default("10"),
    whole("--warmup", "steps before the timed ones; default: 3, on cuda 6", 0),
    file("--trace", "FILE",
         "write the last steps of all ranks there, part by part and call by call, for Perfetto or chrome://tracing"),
    kJson,
    kSet,
    kPluginPath,
    whole("--layers", "layers of the model").not_under_launch(),
    whole("--hidden", "hidden size of the model").not_under_launch(),
    whole("--heads", "attention heads of the model").not_under_launch(),
    whole("--vocab", "size of the vocabulary").not_under_launch(),
    whole("--batch", "sequences per micro-batch").not_under_launch(),
    kSeq.not_under_launch(),
    one_of("--dtype", "TYPE", "f32|bf16|fp16", "data type of the computation; default: the config's")
        .not_under_launch(),
    one_of("--device", "DEVICE", "cpu|cuda", "device to run on; default: the config's").not_under_launch(),
    kThreads.not_under_launch()};

inline constexpr Option kBenchKernels[] = {kDtype, kDevice, kRounds.by_default("10"), kThreads, kJson};

inline constexpr Option kBenchOptimizer[] = {
    whole("--elements", "number of parameters to update; the default is that of a small model").by_default("124439808"),
    kDevice,
    kRounds.by_default("7"),
    kThreads,
    kPluginPath,
    kJson};

inline constexpr Option kBenchAttention[] = {
    kBatch,
    kHeads,
    kGroups,
    kHeadSize,
    kSeq.by_default("1024"),
    whole("--documents", "also times rows packed with documents of this mean length beside one padded document a row"),
    flag("--full", "every token attends to every other one; default: causal, to earlier ones only"),
    kDtype,
    kDevice,
    kRounds.by_default("15"),
    kThreads,
    kPluginPath,
    kJson};

inline constexpr Option kBenchStartup[] = {processes("processes to start; default: once with 1 and once with 2"),
                                           kRounds.by_default("5"), kThreads, kJson};

inline constexpr Option kBenchRendezvous[] = {
    ranks("ranks that meet; default: 2, 8, 32, 128 and 512, one after the other", 2), kRounds.by_default("5"), kJson};

inline constexpr Option kBenchPlugins[] = {kPluginPath, kJson};

inline constexpr Option kBenchProducts[] = {
    text("--shapes", "MxNxK,...", "products to time; default: squares and those of known models"),
    kDtype,
    kDevice,
    kRounds.by_default("10"),
    kThreads,
    kJson};

inline constexpr Option kBenchCollectives[] = {
    processes("processes to start", 2).by_default("2").not_under_launch(),
    some_of("--op", "NAME,...", "all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|send_recv",
            "collectives to time; default: all"),
    text("--sizes", "BYTES,...", "sizes to time, such as 64K,32M"),
    text("--from", "BYTES", "smallest size; each next one is four times as large").by_default("4K"),
    text("--to", "BYTES", "largest size").by_default("512M"),
    kRounds.by_default("10"),
    kDevice,
    text("--communicator", "NAME,...", "communicator plugins to time; default: the device's own"),
    kSet,
    kPluginPath,
    kThreads,
    kJson};

inline constexpr Option kBenchContext[] = {
    processes("processes to start", 2).by_default("2").not_under_launch(),
    kBatch,
    kHeads,
    kGroups,
    kHeadSize,
    kSeq.by_default("4096"),
    kDtype,
    text("--attention", "NAME", "attention plugin of each rank; default: the device's own"),
    kRounds.by_default("5"),
    kDevice,
    kPluginPath,
    kThreads,
    kJson};

inline constexpr Option kBenchCheckpoint[] = {
    whole("--every", "steps between two saves, and of a block without one").by_default("10"),
    kRounds.by_default("5"),
    file("--folder", "FOLDER", "on the disk to be measured; default: the current folder"),
    kSet,
    kPluginPath,
    kJson};

inline constexpr Option kBenchData[] = {
    whole("--batches", "micro-batches per round").by_default("200"),
    whole("--first-step", "the step whose batch is the first, as in a run that goes on there").by_default("1"),
    kRounds.by_default("5"),
    kSet,
    kPluginPath,
    kJson};

}  // namespace drivetrain::cli::rows
