// The options of the program, each written down once: name, value, help, what is accepted, default. Rows of
// cli/command_table.h are made of them. Here are those that several commands share, and those of small commands.
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

inline constexpr Option kInspect[] = {kJson, kSchema, kPluginPath};

inline constexpr Option kConfig[] = {ranks("plan for this many ranks; default: what the config asks for"), kSet,
                                     kDeepSpeed, kPluginPath};
inline constexpr Option kConfigJson[] = {ranks("plan for this many ranks; default: what the config asks for"), kSet,
                                         kDeepSpeed, kPluginPath, kJson};
inline constexpr Option kConfigSchema[] = {kPluginPath};

inline constexpr Option kGenerate[] = {
    {.name = "--prompt",
     .value = "TEXT",
     .help = "the text that the sample continues",
     .takes = Takes::text,
     .excludes = "--prompts",
     .required = true},
    {.name = "--prompts",
     .value = "FILE",
     .help = "a prompt per line, or, in a .jsonl file, an object with \"prompt\" (a text or a list of token ids) or "
             "\"messages\"; what is sampled is written as a line of JSON for each",
     .takes = Takes::file},
    {.name = "--chat",
     .help =
         "write each prompt as the message of a user, by the chat template of the tokenizer, and sample the answer"},
    {.name = "--template",
     .value = "NAME",
     .help = "which of several chat templates of the tokenizer; default: \"tool_use\" for conversations with tools "
             "where there is one, else \"default\"",
     .takes = Takes::text,
     .needs = "--chat"},
    {.name = "--tokens",
     .value = "N",
     .help = "how many tokens to add at most",
     .takes = Takes::whole,
     .otherwise = "200",
     .least = 1,
     .alias = "--max-new-tokens"},
    {.name = "--temperature",
     .value = "T",
     .help = "higher is more random; 0 takes the most likely token",
     .takes = Takes::real,
     .otherwise = "0.8"},
    whole("--top-k", "draw from the N most likely tokens only"),
    {.name = "--top-p",
     .value = "P",
     .help = "draw from the fewest most likely tokens whose probabilities sum up to P",
     .takes = Takes::real,
     .otherwise = "1"},
    with_default(whole("--seed", "seed of the random draws", 0), "1"),
    with_default(whole("--batch-size", "prompts that are computed together"), "8"),
    kDevice,
    {.name = "--dtype",
     .value = "TYPE",
     .help = "data type of weights and activations",
     .takes = Takes::one_of,
     .choices = "f32|bf16|f16",
     .otherwise = "f32"},
    {.name = "--attention",
     .value = "NAME",
     .help = "attention plugin; default: that of the run, else the default of configs",
     .takes = Takes::text},
    {.name = "--tokenizer",
     .value = "FOLDER",
     .help = "folder or file of a tokenizer, or the name of one; default: that of the model's folder, and bytes "
             "without one",
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
    {.name = "--save-dtype",
     .value = "TYPE",
     .help = "with --to hf: type of the weights; default: save_dtype of the config, else that of FROM or its origin",
     .takes = Takes::one_of,
     .choices = "float32|bfloat16|float16"},
    kSet,
    kPluginPath};

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

// Commands of others lie where plugins do.
inline constexpr Option kHelp[] = {{.name = "--man", .help = "print the manual page, as `man -l -` reads it"},
                                   kPluginPath};
inline constexpr Option kCompletion[] = {kPluginPath};

}  // namespace drivetrain::cli::rows
