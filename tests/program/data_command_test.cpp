// `drivetrain data` and `generate` with a tokenizer: what people type, codes, what is printed, kills at any call.
#include <sys/stat.h>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

const std::string kTokenizers = std::string(DRIVETRAIN_GOLDEN_DIR) + "/tokenizer_files/";

class DataCommand : public ProgramTest {
 protected:
  DataCommand() {
    for (int i = 0; i < 300; ++i)
      lines_ += concat("{\"text\": \"It's document ", i, ", with a number: ", i * i, ".\\n\", \"id\": ", i, "}\n");
    write("texts.jsonl", lines_);
  }
  Ran prepare(const std::string& more, const std::string& environment = "") const {
    return run("data prepare --input texts.jsonl " + more, environment);
  }
  void expect_refused(const std::string& arguments, int code, const std::vector<std::string>& words) const {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, code) << ran.output;
    expect_says(ran.output, words);
  }
  std::string lines_;
};

TEST_F(DataCommand, texts_become_token_files_that_show_the_texts) {
  const Ran made = prepare("--output out/data --append-eod --tokenizer " + kTokenizers + "llama3");
  ASSERT_EQ(made.code, 0) << made.output;
  expect_says(made.output, {"out/data.bin", "300 documents", "uint16", "bytes per token", "MB/s"});
  const Ran whole = run("data verify out/data --vocab-size 400");
  EXPECT_EQ(whole.code, 0) << whole.output;
  expect_says(whole.output, {"300 documents", "whole"});
  expect_refused("data verify out/data --vocab-size 300", 8,
                 {"out/data.bin: document 0, position", "is not below 300"});
  const Ran shown =
      run("data show out/data --json --document 7 --histogram lengths.svg --tokenizer " + kTokenizers + "llama3");
  ASSERT_EQ(shown.code, 0) << shown.output;
  const Value value = parse_json(shown.output, "shown");
  EXPECT_EQ(value.find("documents")->as_int(), 300);
  EXPECT_EQ(value.find("document")->find("text")->as_string(),
            "<|begin_of_text|>It's document 7, with a number: 49.\n<|end_of_text|>")
      << "as generate and evaluate begin";
  EXPECT_EQ(file_bytes(path("lengths.svg")).substr(0, 4), "<svg");
  expect_says(run("data show out/data").output, {"300 documents", "tokens per document", "document 0"});
}

TEST_F(DataCommand, tokenizers_are_named_by_folder_file_or_plugin) {
  for (const std::string& name :
       {kTokenizers + "gpt2", kTokenizers + "deepseek/tokenizer.json", kTokenizers + "sentencepiece"}) {
    const Ran made = prepare("--output data --tokenizer " + name);
    EXPECT_EQ(made.code, 0) << name << made.output;
    std::filesystem::remove(path("data.bin")), std::filesystem::remove(path("data.idx"));
  }
  // A file per byte: document 0 has as many tokens as bytes.
  ASSERT_EQ(prepare("--output data --tokenizer bytes").code, 0);
  EXPECT_EQ(parse_json(run("data show data --json").output, "shown").find("document")->find("length")->as_int(), 35);
  expect_refused("data prepare --input texts.jsonl --output x --tokenizer nothing", 2,
                 {"tokenizer nothing", "installed are"});
  expect_refused("data prepare --input texts.jsonl --output x --tokenizer " + folder(), 2,
                 {"none of the installed tokenizers"});
  std::filesystem::copy(kTokenizers + "gpt2", path("both"));
  std::filesystem::copy(kTokenizers + "sentencepiece/tokenizer.model", path("both"));
  expect_refused("data prepare --input texts.jsonl --output x --tokenizer both", 2,
                 {"looks like several things", "give the file"});
  expect_refused(
      "data prepare --input texts.jsonl --output x --append-eod --tokenizer " + kTokenizers + "o200k --eod nope", 2,
      {"--eod nope", "no such token"});
  expect_refused("data prepare --input texts.jsonl --output x --append-eod --tokenizer " + kTokenizers + "digits", 2,
                 {"which token ends a document", "--eod TOKEN"});
}

TEST_F(DataCommand, what_a_tokenizer_file_has_and_nobody_knows_is_refused_by_name) {
  const std::string good = file_bytes(kTokenizers + "llama3/tokenizer.json");
  const auto refused = [&](const std::string& part, const std::string& other, const std::vector<std::string>& words) {
    std::string text = good;
    ASSERT_NE(text.find(part), std::string::npos) << part;
    write("bad/tokenizer.json", text.replace(text.find(part), part.size(), other));
    expect_refused("data prepare --input texts.jsonl --output x --tokenizer bad", 2, words);
  };
  refused(R"("normalizer":null)", R"("normalizer":{"type":"NFKC"})",
          {"tokenizer.json: normalizer", "NFKC", "known are NFC"});
  refused(R"("type":"Split")", R"("type":"Metaspace")", {"pre_tokenizer", "Metaspace", "known are Split"});
  refused(R"("behavior":"Isolated")", R"("behavior":"MergedWithNext")", {"pre_tokenizer", "MergedWithNext"});
  refused(R"(\\p{N}{1,3})", R"(\\p{Han}+)", {"pre_tokenizer", "\\p{Han}"});
  refused(R"("dropout":null)", R"("dropout":0.1)", {"model", "\"dropout\" is 0.1"});
  refused(R"("byte_fallback":false)", R"("byte_fallback":true)", {"pre_tokenizer", "byte_fallback", "Metaspace"});
  refused(R"("ignore_merges":true)", R"("ignore_order":true)", {"model", "ignore_order"});
  refused(R"("type":"BPE")", R"("type":"WordPiece")", {"model", "WordPiece"});
  refused(R"("lstrip":false)", R"("rstripes":false)", {"added_tokens", "rstripes"});
  refused(R"("!":2)", R"("!":3)", {"two tokens have the id 3"});
  write("bad/tokenizer.json", good.substr(0, good.size() / 2));
  expect_refused("data prepare --input texts.jsonl --output x --tokenizer bad", 2,
                 {"bad/tokenizer.json:1:", "not valid JSON"});
}

TEST_F(DataCommand, a_broken_line_names_its_number) {
  write("texts.jsonl", lines_ + "{\"text\": \n" + lines_);
  expect_refused("data prepare --input texts.jsonl --output x --tokenizer bytes", 8,
                 {"texts.jsonl:301: column 10: not valid JSON", "--skip-broken"});
  const Ran made = prepare("--output x --skip-broken --tokenizer bytes");
  EXPECT_EQ(made.code, 0) << made.output;
  expect_says(made.output, {"600 documents", "1 broken lines left out"});
}

TEST_F(DataCommand, nothing_is_guessed_about_what_inputs_are) {
  const std::string to = " --output x --tokenizer bytes ";
  write("part-00000", lines_), write("notes.txt", "notes");
  expect_refused("data prepare --input part-00000" + to, 2, {"part-00000", "begins with {", "--format jsonl"});
  expect_refused("data prepare --input notes.txt --json-key body" + to, 2, {"--json-key", "notes.txt"});
  expect_refused("data prepare --input notes.txt --skip-broken" + to, 2, {"--skip-broken", "notes.txt"});
  expect_refused("data prepare --input notes.txt --format csv" + to, 2, {"--format", "csv"});
  expect_says(run("data prepare --input part-00000 --format jsonl" + to).output, {"300 documents"});
  expect_says(run("data prepare --input part-00000 --format text --output z --tokenizer bytes").output,
              {"1 documents"});
  expect_refused("data prepare --input x.bin --output y --tokenizer bytes", 2, {"x.bin", "no text"});
  const Ran made = run("data prepare --format text --output y --tokenizer bytes --input '" + folder() + "/[nx]*'");
  EXPECT_EQ(made.code, 0) << made.output;
  expect_says(made.output, {"left out", "x.bin", "x.idx", "1 documents"});
}

TEST_F(DataCommand, a_kill_amid_the_texts_leaves_what_the_same_command_completes) {
  for (const char* name : {"a", "b", "c"}) write(concat("checkpoints/", name, ".txt"), name);
  const auto prepare_beside = [&](const std::string& environment) {
    return run("data prepare --input checkpoints --output " + path("checkpoints/tok") + " --tokenizer bytes",
               concat("RANK=0 KILL_RANK=0 LD_PRELOAD=", DRIVETRAIN_KILL_AT_CALL, " ", environment));
  };
  ASSERT_EQ(prepare_beside("KILL_COUNT=" + path("count")).code, 0);
  const int64_t calls = std::strtoll(file_bytes(path("count0")).c_str(), nullptr, 10);
  const std::string whole = file_bytes(path("checkpoints/tok.bin"));
  ASSERT_GT(calls, 8);
  for (int64_t at = 1; at <= calls; at += 5) {
    for (const char* end : {"bin", "idx"}) std::filesystem::remove(path(concat("checkpoints/tok.", end)));
    prepare_beside(concat("KILL_AT_CALL=", at));
    const Ran again = prepare_beside("");
    ASSERT_TRUE(again.code == 0 || again.output.find("is there already") != std::string::npos) << at << again.output;
    ASSERT_EQ(file_bytes(path("checkpoints/tok.bin")), whole) << at;
  }
}

TEST_F(DataCommand, a_kill_at_any_call_leaves_what_the_next_try_completes) {
  const auto prepare_to = [&](const std::string& prefix, const std::string& environment) {
    std::filesystem::create_directories(path("checkpoints"));  // where kill_at_call looks
    return prepare("--output " + path("checkpoints/" + prefix) + " --tokenizer " + kTokenizers + "gpt2",
                   concat("RANK=0 KILL_RANK=0 LD_PRELOAD=", DRIVETRAIN_KILL_AT_CALL, " ", environment));
  };
  ASSERT_EQ(prepare_to("whole", "KILL_COUNT=" + path("count")).code, 0);
  const int64_t calls = std::strtoll(file_bytes(path("count0")).c_str(), nullptr, 10);
  ASSERT_GT(calls, 8);
  int killed = 0;
  for (int64_t at = 2; at <= calls; at += 3) {
    killed += prepare_to("b", concat("KILL_AT_CALL=", at)).code == 128 + SIGKILL;
    const Ran again = prepare_to("b", "");
    ASSERT_TRUE(again.code == 0 || again.output.find("is there already") != std::string::npos) << again.output;
    for (const char* end : {".bin", ".idx"})
      ASSERT_EQ(file_bytes(path(concat("checkpoints/b", end))), file_bytes(path(concat("checkpoints/whole", end))))
          << at;
    for (const auto& entry : std::filesystem::directory_iterator(path("checkpoints")))
      if (entry.path().filename().string().starts_with("b.")) std::filesystem::remove(entry.path());
  }
  EXPECT_GT(killed, 3);
}

TEST_F(DataCommand, generate_speaks_through_the_tokenizer_of_the_folder) {
  ASSERT_EQ(train("--set model.vocab_size=520").code, 0);
  expect_refused("generate run --prompt ab", 2, {"has a vocabulary of 520 tokens", "--tokenizer FOLDER"});
  const std::string words = "generate run --prompt \"It's a\" --tokens 12 --seed 3 ";
  const Ran named = run(words + "--tokenizer " + kTokenizers + "gpt2");
  ASSERT_EQ(named.code, 0) << named.output;
  EXPECT_EQ(named.output.substr(0, 6), "It's a");
  EXPECT_GT(named.output.size(), 12u);
  expect_refused(words + "--tokenizer " + kTokenizers + "sentencepiece", 2,
                 {"has 600 ids", "520", "do not belong together"});
  for (const char* file : {"vocab.json", "merges.txt"})
    std::filesystem::copy(kTokenizers + "gpt2/" + file, path("run/final/") + file);
  EXPECT_EQ(run(words).output, named.output);
}

TEST_F(DataCommand, generate_takes_the_tokenizer_that_the_run_recorded) {
  ASSERT_EQ(train("--set model.vocab_size=520 --set 'tokenizer={\"type\": \"bpe\", \"params\": {\"folder\": \"" +
                  kTokenizers + "o200k\"}}'")
                .code,
            0);
  const Ran ran = run("generate run --prompt hello --tokens 5");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(ran.output.substr(0, 5), "hello");
  const Ran wrong = train(
      "--resume never --set output_dir=other --set 'tokenizer={\"type\": \"bpe\", \"params\": {\"fodler\": \"x\"}}'");
  EXPECT_EQ(wrong.code, 2);
  expect_says(wrong.output, {"fodler", "folder"});
}

TEST_F(DataCommand, generate_takes_the_tokenizer_of_the_runs_dataset_and_ends_where_it_is_told) {
  write("chat.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  const Ran trained = train(
      "--set optimizer.lr=1e-9 --set model.vocab_size=520 --set model.max_position_embeddings=64 --set "
      "'dataset={\"type\": \"packed\", "
      "\"params\": {\"seq_length\": 64, \"source\": {\"type\": \"instruction\", \"params\": {\"files\": "
      "[\"chat.jsonl\"], \"seq_length\": 64, \"tokenizer\": {\"type\": \"bpe\", \"params\": {\"folder\": \"" +
      kTokenizers + "qwen2\"}}}}}}'");
  ASSERT_EQ(trained.code, 0) << trained.output;
  Value resolved = read_json_file(path("run/resolved.json"));
  Value& facts = *const_cast<Value*>(resolved.find("_resolved"));
  EXPECT_EQ(facts.find("end_tokens")->items().size(), 1u) << "the token of <|im_end|>";
  EXPECT_EQ(facts.find("begin_tokens")->items().size(), 0u);
  const auto sample = [&] { return run("generate run --prompt hello --tokens 12 --seed 3").output; };
  const std::string said = sample();
  EXPECT_EQ(said.substr(0, 5), "hello") << "not a word of bytes";
  EXPECT_GT(said.size(), 6u);
  Value::Array every;
  for (int64_t id = 0; id < 520; ++id) every.emplace_back(id);
  write("run/generation_config.json", Value(Value::Object{{"eos_token_id", every}}).to_json());
  EXPECT_EQ(sample(), "hello\n") << "whatever comes ends the text";
  std::filesystem::remove(path("run/generation_config.json"));
  facts.set("end_tokens", every);
  write("run/resolved.json", resolved.to_json());
  EXPECT_EQ(sample(), "hello\n");
}

TEST_F(DataCommand, files_that_are_none_of_what_their_name_says_are_named) {
  write("half.jsonl", "{\"text\": \"a\\ud83d\\ude00 \\\\udc00\"}\n{\"text\": \"a\\udc00b\"}\n");
  expect_refused("data prepare --input half.jsonl --tokenizer bytes --output x", 8, {"half.jsonl:2", "surrogate"});
  ASSERT_EQ(mkfifo(path("pipe.idx").c_str(), 0600), 0);
  expect_refused("data verify pipe", 8, {"pipe.idx", "is no file"});
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    write(concat("damaged-", name, "/", name), R"({"model": {"type": "BPE", "vocab": {"a)");
    expect_refused(concat("data prepare --input texts.jsonl --output x --tokenizer damaged-", name), 2, {name});
  }
}

}  // namespace
}  // namespace drivetrain::test
