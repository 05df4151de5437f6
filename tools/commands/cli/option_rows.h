// The options of the program, each written down once: name, value, help, what is accepted, default. Rows of
// cli/command_table.h are made of them. Here are those that several commands share, and those of small commands.
#pragma once

#include "cli/command.h"

namespace drivetrain::cli::rows {

inline constexpr Option kSet =
    text("--set", "KEY=VALUE",
         "change one key of the config, such as optimizer.params.lr=1e-4; may be repeated, and of two for one key the "
         "later counts")
        .many();
inline constexpr Option kDeepSpeed =
    file("--deepspeed", "FILE", "read this DeepSpeed file first; what the config says goes before it")
        .also("--deepspeed_config")
        .many();
inline constexpr Option kPluginPath =
    folder("--plugin-path", "DIR", "look for plugins in this folder first; may be repeated").many();
inline constexpr Option kPlan = flag("--plan", "show what would run (mesh, placement, memory, traffic) and stop");
inline constexpr Option kSvg =
    file("--svg", "FILE", "with --plan: draw the schedule of a step into this file").only_with("--plan");
inline constexpr Option kPlanJson =
    flag("--json", "with --plan: print the plan as one JSON object").only_with("--plan");
inline constexpr Option kJson = flag("--json", "print one JSON object instead of a table");
inline constexpr Option kSchema = flag("--schema", "print the JSON Schema of the options").not_with("--json");

using cli::whole;
constexpr Option whole(std::string_view name, std::string_view help, int64_t least = 1) {
  return whole(name, "N", help, least);
}
constexpr Option processes(std::string_view help, int64_t least = 1) { return whole("-n", help, least); }
constexpr Option ranks(std::string_view help, int64_t least = 1) { return processes(help, least).counts("ranks"); }

inline constexpr Option kThreads = whole("--threads", "threads per process; default: the cores, divided evenly");
inline constexpr Option kDevice = one_of("--device", "DEVICE", "cpu|cuda", "device to run on").by_default("cpu");
inline constexpr Option kDtype =
    one_of("--dtype", "TYPE", "f32|bf16|f16", "data type of the tensors").by_default("f32");
inline constexpr Option kRounds = whole("--rounds", "how often each case is timed");

inline constexpr Option kResume =
    text("--resume", "auto|never|TAG",
         "go on from the newest checkpoint of output_dir (auto), from this one (a tag such as step-00000040), or "
         "refuse a folder that holds a run (never); default: auto, if the config is the one of that run");

inline constexpr Option kCheckPlugins =
    flag("--check-plugins",
         "look at every call of a step: plugins that change what is not theirs, or forget a gradient, are named; slow")
        .not_with("--plan");

inline constexpr Option kTrain[] = {kSet, kDeepSpeed, kResume, kCheckPlugins, kPlan, kSvg, kPlanJson, kPluginPath};

inline constexpr Option kInspect[] = {kJson, kSchema, kPluginPath};

inline constexpr Option kConfig[] = {ranks("plan for this many ranks; default: what the config asks for"), kSet,
                                     kDeepSpeed, kPluginPath};
inline constexpr Option kConfigJson[] = {ranks("plan for this many ranks; default: what the config asks for"), kSet,
                                         kDeepSpeed, kPluginPath, kJson};
inline constexpr Option kConfigSchema[] = {kPluginPath};

inline constexpr Option kGenerate[] = {
    text("--prompt", "TEXT", "the text that the sample continues").not_with("--prompts").must(),
    file("--prompts", "FILE",
         "a prompt per line, or, in a .jsonl file, an object with \"prompt\" (a text or a list of token ids) or "
         "\"messages\"; what is sampled is written as a line of JSON for each"),
    flag("--chat",
         "write each prompt as the message of a user, by the chat template of the tokenizer, and sample the answer"),
    text("--template", "NAME",
         "which of several chat templates of the tokenizer; default: \"tool_use\" for conversations with tools where "
         "there is one, else \"default\"")
        .only_with("--chat"),
    whole("--tokens", "N", "how many tokens to add at most", 1).by_default("200").also("--max-new-tokens"),
    real("--temperature", "T", "higher is more random; 0 takes the most likely token").by_default("0.8"),
    whole("--top-k", "draw from the N most likely tokens only"),
    real("--top-p", "P", "draw from the fewest most likely tokens whose probabilities sum up to P").by_default("1"),
    whole("--seed", "seed of the random draws", 0).by_default("1"),
    whole("--batch-size", "prompts that are computed together").by_default("8"),
    kDevice,
    one_of("--dtype", "TYPE", "f32|bf16|f16", "data type of weights and activations").by_default("f32"),
    text("--attention", "NAME", "attention plugin; default: that of the run, else the default of configs"),
    folder("--tokenizer", "FOLDER",
           "folder or file of a tokenizer, or the name of one; default: that of the model's folder, and bytes without "
           "one"),
    flag("--plan",
         "say how much memory the texts will need (weights, keys and values, the first pass) and stop before the "
         "weights are read")
        .not_with("--memory"),
    flag("--memory", "say in the end, on standard error, how much memory was planned and what was measured"),
    kPluginPath};

inline constexpr Option kEvaluate[] = {
    kJson,
    file("--output", "FILE", "write the results there too, as one JSON object in the form of lm-evaluation-harness"),
    whole("--limit", "evaluate the first N questions or rows only"),
    whole("--batch", "rows that are computed together").by_default("8"),
    folder("--tokenizer", "FOLDER",
           "folder or file of a tokenizer, or the name of one; default: the set's, else that of the model's folder"),
    kPluginPath};

inline constexpr Option kStore = text(
    "--store", "NAME",
    "the store that wrote them; default: the one that the run's resolved.json names, without that the default store");

inline constexpr Option kCheckpoint[] = {kStore, kJson, kPluginPath};

inline constexpr Option kCheckpointDiff[] = {
    real("--tolerance", "X",
         "elements and counters that are at most this far apart count as equal; default: every bit counts"),
    kStore, kJson, kPluginPath};

inline constexpr Option kCheckpointAverage[] = {
    folder("--output", "FOLDER", "new folder for the averaged checkpoint").must(),
    whole("--last", "average the newest N instead of tags by name", 2), kStore, kJson, kPluginPath};

inline constexpr Option kConvert[] = {
    text("--to", "FORMAT",
         "native (a run's folder, in which training goes on), hf, or a checkpoint_format that can write")
        .must(),
    text("--tag", "TAG", "which checkpoint of FROM; default: its newest"),
    file("--config", "CONFIG",
         "with --to native: of the run that goes on; else: has the model, where FROM does not tell its sizes"),
    one_of("--save-dtype", "TYPE", "float32|bfloat16|float16",
           "with --to hf: type of the weights; default: save_dtype of the config, else that of FROM or its origin"),
    kSet,
    kPluginPath};

inline constexpr Option kNewPlugin[] = {
    folder("--dir", "DIR", "make the plugin's folder, NAME, in this folder").by_default(".")};

inline constexpr Option kConformance[] = {
    text("--options", "JSON", "options of the plugin, as in \"params\" of a config; default: none"),
    text("--case", "PATTERN", "run the cases whose names fit, with * and ?; several with : between them"),
    flag("--list", "name the cases with the sentences of the contract that they hold to, and run none"),
    whole("--ranks-multiple", "N", "the plugin's options allow numbers of ranks that N divides", 1),
    flag("--json", "print one JSON object instead of lines"),
    file("--junit", "FILE", "write the results as JUnit XML too")};

// Commands of others lie where plugins do.
inline constexpr Option kHelp[] = {flag("--man", "print the manual page, as `man -l -` reads it"), kPluginPath};
inline constexpr Option kCompletion[] = {kPluginPath};

}  // namespace drivetrain::cli::rows
