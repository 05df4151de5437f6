// The command line: help that needs no LibTorch, usage errors, plans, and what `generate` refuses.
#include <sstream>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class Commands : public ProgramTest {};

TEST_F(Commands, help_version_and_usage_errors_load_neither_libtorch_nor_the_library) {
  const std::string help[] = {"--help", "--version", "train --help", "launch --help", "generate --help"};
  const std::string wrong[] = {"", "trian", "train", "train --sett x", "train a b", "generate x", "launch -n 2"};
  for (const std::string& words : help) EXPECT_EQ(run(words).code, 0) << words;
  for (const std::string& words : wrong) EXPECT_EQ(run(words).code, 2) << words;
  for (const std::string& words : {help[0], help[1], help[2], wrong[1], wrong[3]}) {
    const Ran ran = run(words, "LD_DEBUG=files");
    expect_says(ran.output, {"libstdc++"});  // the linker does talk
    for (const char* library : {"libtorch", "libc10", "libdrivetrain.so"})
      EXPECT_EQ(ran.output.find(library), std::string::npos) << words;
  }
}

TEST_F(Commands, help_names_every_command_and_exit_code) {
  expect_says(run("--help").output, {"\n  launch", "\n  train", "\n  generate", "before a run: drivetrain plan ",
                                     "\n  config", "\n  bench", "\n  inspect", "Exit codes", "7 numeric"});
  expect_says(run("--help").output, {"DRIVETRAIN_RUN_TOKEN"});
  EXPECT_EQ(run("help").output, run("--help").output);
  for (const std::string command : {"train", "launch", "bench", "bench step", "config check"}) {
    EXPECT_EQ(run("help " + command).output, run(command + " --help").output);
    expect_says(run("help " + command).output, {"usage: drivetrain " + command});
  }
  expect_says(run("train --help").output, {"usage: drivetrain train CONFIG", "--set KEY=VALUE", "--plan"});
}

TEST_F(Commands, usage_errors_say_what_was_wrong_and_the_usage) {
  expect_refused("", 2, {"drivetrain --help"});
  expect_refused("trian", 2, {"no command \"trian\"", "did you mean \"train\"?"});
  expect_refused("train", 2, {"something is missing", "usage: drivetrain train CONFIG"});
  expect_refused("train tiny.json --sett a=1", 2, {"--sett", "did you mean \"--set\"?", "usage: drivetrain train"});
  expect_refused("train tiny.json other.json", 2, {"\"other.json\" was not expected", "usage: drivetrain train"});
  expect_refused("train tiny.json --json", 2, {"--json", "--plan"});
  expect_refused("inspect --verbose", 2, {"--verbose", "usage: drivetrain inspect"});
  expect_refused("inspect --json --schema", 2, {"--json", "--schema", "exclude"});
  expect_refused("help trian", 2, {"\"trian\"", "did you mean \"train\"?"});
  expect_refused("completion fish", 2, {"bash or zsh", "\"fish\""});
  expect_refused("train tiny.json --set", 2, {"--set wants KEY=VALUE after it"});
  expect_refused("bench step --resume auto", 2, {"--resume", "always begins anew"});
  expect_refused("launch -n x tiny.json", 2, {"-n wants a number of ranks", "\"x\""});
  expect_refused("launch -n 0 tiny.json", 2, {"-n wants a number of ranks from 1", "\"0\""});
  expect_refused("config chekc tiny.json", 2, {"config does not know \"chekc\"", "usage: drivetrain config"});
  expect_refused("config check tiny.json -n two", 2, {"-n wants a number of ranks", "\"two\""});
  expect_refused("plan", 2, {"needs a config, or --table NAME", "xtuner_speed"});
}

TEST_F(Commands, a_plan_shows_mesh_plugins_and_memory_and_starts_nothing) {
  for (const std::string command : {"train ", "launch -n 4 "}) {
    const Ran ran = run(command + path("tiny.json") + " --plan");
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::string ranks = command == "train " ? "1" : "4";
    expect_says(ran.output, {"4592 parameters, " + ranks + " rank", "batch 4 = ", "plugins: communicator/local",
                             "mesh, fastest axis first: dp " + ranks, "hooks nest", "memory per rank"});
  }
  expect_refused("launch -n 3 " + path("tiny.json") + " --plan", 2, {"4 / 3 data-parallel ranks"});
  EXPECT_EQ(files(), std::set<std::string>{"tiny.json"});
}

TEST_F(Commands, a_plan_as_json_is_one_object_and_nothing_else) {
  for (const std::string command : {"train ", "launch -n 4 "}) {
    const Ran ran = run(command + path("tiny.json") + " --plan --json");
    ASSERT_EQ(ran.code, 0) << ran.output;
    const Value plan = parse_json(ran.output, "plan");
    EXPECT_EQ(plan.find("model")->find("parameters")->as_int(), 4592);
    EXPECT_EQ(plan.find("run")->find("world_size")->as_int(), command == "train " ? 1 : 4);
    EXPECT_EQ(plan.find("batch")->find("train_batch_size")->as_int(), 4);
    EXPECT_EQ(plan.find("mesh")->items().at(0).find("axis")->as_string(), "dp");
  }
  expect_refused("train " + path("tiny.json") + " --json", 2, {"--json", "--plan"});
}

TEST_F(Commands, a_result_that_cannot_be_printed_is_an_error) {
  const std::string config = path("tiny.json"),
                    library = DRIVETRAIN_BUILD_DIR "/lib/drivetrain/plugins/optimizer_adamw.so";
  for (const std::string& words :
       {"config resolve " + config, "config check " + config, std::string("inspect"), "inspect " + library,
        std::string("inspect optimizer/adamw --schema"), "train " + config + " --plan", std::string("--help"),
        std::string("--version"), std::string("train --help")})
    for (const char* place : {" > /dev/full", " >&-"}) {
      const Ran ran = run_shell("(cd " + folder() + " && " + program() + " " + words + place + ")");
      EXPECT_EQ(ran.code, 8) << words << place << ran.output;
      expect_says(ran.output, {"drivetrain: error: ", "cannot write to the standard output"});
    }
}

TEST_F(Commands, a_plan_is_drawn_into_what_there_is_and_a_device_stays_one) {
  std::filesystem::create_symlink("/dev/full", path("full"));
  std::filesystem::create_symlink("drawn.svg", path("link.svg"));
  const std::string plan = "train " + path("tiny.json") + " --plan --svg ";
  EXPECT_EQ(run(plan + "full").code, 8);
  EXPECT_TRUE(std::filesystem::is_symlink(path("full")) && std::filesystem::is_character_file("/dev/full"));
  EXPECT_EQ(run(plan + "link.svg").code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.svg")));
  expect_says(file_bytes(path("drawn.svg")), {"<svg", "</svg>"});
  EXPECT_EQ(run(plan + "/dev/stdout > both.txt").code, 0);
  expect_says(file_bytes(path("both.txt")), {"<svg", "</svg>", "memory per rank"});
}

TEST_F(Commands, generate_says_what_it_misses) {
  std::filesystem::create_directory(path("empty"));
  expect_refused("generate empty --prompt x", 2,
                 {"empty holds no model", "config.json", "run folder of a finished run"});
  expect_refused("generate nowhere --prompt x", 2, {"nowhere holds no model"});
  write("empty/adapter_config.json", "{}");
  expect_refused("generate empty --prompt x", 2, {"empty is the folder of an adapter", "merge_and_unload"});
  expect_refused("generate empty", 2, {"--prompt TEXT is missing", "usage: drivetrain generate FOLDER"});
  expect_refused("generate empty --prompt ''", 2, {"a prompt of at least one byte"});
  expect_refused("generate empty --prompt x --tokens 0", 2, {"--tokens wants", "at least 1", "\"0\""});
  expect_refused("generate empty --prompt x --temperature -1", 2, {"--temperature wants", "at least 0", "\"-1\""});
}

TEST_F(Commands, generate_refuses_a_vocabulary_that_is_not_of_bytes) {
  ASSERT_EQ(train().code, 0);
  expect_refused("generate run --prompt ab", 2, {"run has a vocabulary of 64 tokens", "--tokenizer FOLDER"});
}

TEST_F(Commands, generate_samples_from_a_run_folder_the_same_bytes_for_the_same_seed) {
  ASSERT_EQ(train("--set model.vocab_size=256 --set model.max_position_embeddings=32").code, 0);
  const auto sample = [&](const std::string& options) {
    const Ran ran = run("generate run --prompt ab --tokens 30 " + options, "OMP_NUM_THREADS=1");
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::string said = "run names no tokenizer: tokens are taken for bytes\n";
    EXPECT_EQ(ran.output.substr(0, said.size() + 2), said + "ab");
    return ran.output.substr(said.size());
  };
  const std::string first = sample("--seed 5");
  EXPECT_EQ(first.size(), 33u);  // prompt, tokens, line end
  EXPECT_EQ(first, sample("--seed 5"));
  EXPECT_NE(first, sample("--seed 6"));
  EXPECT_EQ(sample("--temperature 0 --seed 1"), sample("--temperature 0 --seed 2"));
  EXPECT_EQ(sample("--temperature 0"), sample("--top-k 1"));
  EXPECT_EQ(sample("--temperature 0"), sample("--top-p 1e-9"));
}

TEST_F(Commands, generate_tells_the_memory_that_it_plans_and_measures) {
  ASSERT_EQ(train("--set model.vocab_size=256 --set model.max_position_embeddings=32").code, 0);
  const Ran plan = run("generate run --prompt ab --tokens 30 --plan");
  EXPECT_EQ(plan.code, 0) << plan.output;
  const std::string said = "1 text of 2 tokens and 30 more\nmemory, MB";
  expect_says(plan.output, {said, "planned", "weights", "keys and values", "passing", "together"});
  EXPECT_EQ(plan.output.find("measured"), std::string::npos) << plan.output;
  const Ran both = run("generate run --prompt ab --tokens 30 --memory");
  EXPECT_EQ(both.code, 0) << both.output;
  expect_says(both.output, {said, "planned", "measured"});
  std::filesystem::remove(path("run/final/model.safetensors"));
  EXPECT_EQ(run("generate run --prompt ab --tokens 30 --plan").output, plan.output) << "it reads no weights";
  expect_refused("generate run --prompt ab --plan --memory", 2, {"--memory and --plan exclude each other"});
}

// Of a model whose weights are most of it, also where a run of it would hold float32 masters beside them.
TEST_F(Commands, generate_holds_no_gradients_and_no_masters) {
  ASSERT_EQ(train("--set model.vocab_size=256 --set model.max_position_embeddings=32 --set model.hidden_size=256").code,
            0);
  for (const char* dtype : {"f32", "bf16"}) {
    const Ran ran = run(std::string("generate run --prompt ab --tokens 8 --memory --dtype ") + dtype);
    ASSERT_EQ(ran.code, 0) << ran.output;
    const auto measured = [&](const std::string& what) {
      std::istringstream line(ran.output.substr(ran.output.find("\n" + what) + 1 + what.size()));
      double planned = 0, found = 0;
      line >> planned >> found;
      return found;
    };
    EXPECT_GT(measured("weights"), dtype == std::string("f32") ? 3 : 1.5) << ran.output;
    EXPECT_LT(measured("together"), 1.5 * measured("weights")) << ran.output;
  }
}

TEST_F(Commands, generate_writes_a_line_of_json_for_each_of_several_prompts) {
  ASSERT_EQ(train("--set model.vocab_size=600 --set model.max_position_embeddings=32").code, 0);
  write("ids.jsonl", "{\"prompt\": [1, 2, 3]}\n{\"prompt\": [599]}\n{\"prompt\": [7, 7, 7, 7, 7]}\n");
  const auto lines = [&](const std::string& options) {
    const Ran ran = run("generate run --prompts ids.jsonl --max-new-tokens 6 " + options, "OMP_NUM_THREADS=1");
    EXPECT_EQ(ran.code, 0) << ran.output;
    std::vector<Value> list;
    std::istringstream text(ran.output);
    for (std::string line; std::getline(text, line);) list.push_back(parse_json(line, "line"));
    return list;
  };
  const std::vector<Value> greedy = lines("--temperature 0");
  ASSERT_EQ(greedy.size(), 3u);
  EXPECT_EQ(greedy[1].find("prompt")->to_json(), "[599]");
  for (const Value& line : greedy) {
    EXPECT_EQ(line.find("tokens")->items().size(), 6u);
    EXPECT_EQ(line.find("finish_reason")->as_string(), "length");
    EXPECT_FALSE(line.find("completion")) << "nobody knows what the ids stand for";
  }
  EXPECT_EQ(greedy, lines("--temperature 0 --batch-size 1"));
  EXPECT_EQ(lines("--seed 4 --top-k 50"), lines("--seed 4 --top-k 50 --batch-size 2"))
      << "what a prompt gives depends on none of the others";
  EXPECT_NE(lines("--seed 4"), lines("--seed 5"));

  // The token that the first text has in its third place, and the second one perhaps, ends a text.
  const int64_t end = greedy[0].find("tokens")->items()[2].as_int();
  write("run/final/generation_config.json", concat("{\"eos_token_id\": [", end, "]}"));
  const std::vector<Value> ended = lines("--temperature 0");
  EXPECT_EQ(ended[0].find("finish_reason")->as_string(), "stop");
  EXPECT_LE(ended[0].find("tokens")->items().size(), 2u);
}

TEST_F(Commands, generate_answers_by_the_chat_template_of_the_folder) {
  ASSERT_EQ(train("--set model.vocab_size=256 --set model.max_position_embeddings=32").code, 0);
  write("run/final/chat_template.jinja",
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}");
  const std::string options = " --temperature 0 --tokens 8",
                    said = "run names no tokenizer: tokens are taken for bytes\n";
  const std::string written = run("generate run --prompt '[user]hi[a]'" + options).output;
  ASSERT_EQ(written.substr(0, said.size() + 11), said + "[user]hi[a]");
  EXPECT_EQ(run("generate run --chat --prompt hi" + options).output, said + written.substr(said.size() + 11));
  write("chat.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n{\"prompt\": \"hi\"}\n");
  const Ran both = run("generate run --chat --prompts chat.jsonl" + options);
  ASSERT_EQ(both.code, 0) << both.output;
  std::istringstream lines(both.output.substr(said.size()));
  std::string first, second;
  ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
  const Value of_messages = parse_json(first, "1"), of_text = parse_json(second, "2");
  EXPECT_EQ(*of_messages.find("tokens"), *of_text.find("tokens"));
  EXPECT_EQ(of_messages.find("messages")->to_json(), of_text.find("messages")->to_json());
  expect_refused("generate run --prompts chat.jsonl", 2, {"line 1", "\"messages\"", "add --chat"});
}

TEST_F(Commands, generate_takes_the_chat_template_that_is_named) {
  ASSERT_EQ(train("--set model.vocab_size=256 --set model.max_position_embeddings=32").code, 0);
  const std::string options = " --temperature 0 --tokens 8 --prompts chat.jsonl";
  write("chat.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": [{}]}\n");
  const auto tokens = [&](const std::string& words) {
    const Ran ran = run("generate run --chat" + words + options);
    EXPECT_EQ(ran.code, 0) << ran.output;
    std::istringstream lines(ran.output.substr(ran.output.find('{')));
    std::vector<std::string> list;
    for (std::string line; std::getline(lines, line);)
      list.push_back(parse_json(line, "line").find("tokens")->to_json());
    return list;
  };
  // Every text in the place of the template alone: what the model is then to say.
  std::map<std::string, std::string> said;
  for (const std::string name : {"default", "tool_use", "rag"}) {
    write("run/final/chat_template.jinja", name);
    said[name] = tokens("").at(0);
  }
  write("run/final/chat_template.jinja", "default");
  std::filesystem::create_directory(path("run/final/additional_chat_templates"));
  for (const std::string name : {"tool_use", "rag"})
    write("run/final/additional_chat_templates/" + name + ".jinja", name);
  EXPECT_EQ(tokens(""), (std::vector{said["default"], said["tool_use"]}));
  EXPECT_EQ(tokens(" --template rag"), (std::vector{said["rag"], said["rag"]}));
  EXPECT_EQ(tokens(" --template default"), (std::vector{said["default"], said["default"]}));
  expect_refused("generate run --chat --template x" + options, 2,
                 {"--template: there is no chat template \"x\"", "\"default\", \"rag\", \"tool_use\""});
  expect_refused("generate run --template rag" + options, 2, {"--template", "--chat"});
  std::filesystem::remove(path("run/final/chat_template.jinja"));
  expect_refused("generate run --chat" + options, 2,
                 {"no chat template is \"default\"", "\"rag\", \"tool_use\"", "--template NAME"});
}

TEST_F(Commands, generate_says_what_is_wrong_with_prompts_and_sampling) {
  ASSERT_EQ(train("--set model.vocab_size=256").code, 0);
  expect_refused("generate run --prompt x --top-k 257", 2, {"--top-k 257", "256 tokens"});
  expect_refused("generate run --prompt x --top-k 0", 2, {"--top-k wants", "at least 1"});
  expect_refused("generate run --prompt x --top-p 1.5", 2, {"--top-p 1.5", "up to 1"});
  expect_refused("generate run --prompt x --prompts y", 2, {"exclude each other"});
  expect_refused("generate run --prompts nowhere.txt", 2, {"--prompts nowhere.txt", "no such file"});
  write("empty.txt", "one\n\n");
  expect_refused("generate run --prompts empty.txt", 2, {"empty.txt, line 2", "at least one byte"});
  write("far.jsonl", "{\"prompt\": [256]}\n");
  expect_refused("generate run --prompts far.jsonl", 2, {"far.jsonl, line 1", "token 256", "0 to 255"});
  expect_refused("generate run --chat --prompt x", 2, {"holds no chat template", "--tokenizer FOLDER"});
  const Ran far = run("generate run --prompt 'a text that is longer than sixteen' --tokens 3");
  EXPECT_EQ(far.code, 0);
  expect_says(far.output, {"the 16 positions of the model", "without the cache"});
}

}  // namespace
}  // namespace drivetrain::test
