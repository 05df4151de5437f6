// The conformance suite of dataset over every built implementation, those that read files on some written here.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>

#include <map>

#include <drivetrain/dataset.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/testkit/kit/suite.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/token_pair.h"
#include "support/write_safetensors.h"

namespace drivetrain::test {
namespace {

// Documents of different bytes, some of them held out.
Value text_options(const TempFolder& folder) {
  for (int i = 0; i < 40; ++i)
    std::ofstream(folder.path(concat("d", i, ".txt"))) << "document " << i << std::string(60, 'a' + i % 26);
  return Value::Object{{"files", Value::Array{folder.path()}}, {"seq_length", 16}};
}

// Documents of another dataset, several in a row.
Value packed(const char* type, Value params, const char* method = "best_fit") {
  Value source = Value::Object{{"type", type}, {"params", std::move(params)}};
  return Value::Object{{"source", std::move(source)}, {"seq_length", 160}, {"method", method}, {"window", 7}};
}
Value packed_options(const TempFolder& folder, const char* method) {
  return packed("text", text_options(folder), method);
}

// Conversations of different lengths, some of them held out.
Value instruction_options(const TempFolder& folder) {
  std::ofstream file(folder.path("conversations.jsonl"));
  for (int i = 0; i < 40; ++i)
    file << "{\"prompt\": \"" << std::string(i % 9 + 1, 'q') << i << "\", \"response\": \"" << i << "\"}\n";
  return Value::Object{{"files", Value::Array{folder.path("conversations.jsonl")}},
                       {"tokenizer", "bytes"},
                       {"validation_fraction", 0.3},
                       {"seq_length", 100}};
}

// Two steps of three micro-batches of two rows.
Value token_batches_options(const TempFolder& folder) {
  const std::string file = folder.path("batches.safetensors");
  const at::Tensor tokens = at::arange(2 * 3 * 2 * 17, at::TensorOptions(at::kLong)).remainder(251).view({2, 3, 2, 17});
  write_safetensors(file, {{"tokens", at::kLong, {2, 3, 2, 17}}}, {}, [&](const std::string&) { return tokens; });
  return Value::Object{{"file", file}};
}

// Sequences of 3 to 19 tokens, in two files.
Value megatron_options(const TempFolder& folder) {
  write_token_pair(folder.path("a"), counted_documents(60, 3, 19));
  write_token_pair(folder.path("b"), counted_documents(50, 5, 19), 4);
  return Value::Object{
      {"data_path", Value::Array{Value::Array{1, folder.path("a")}, Value::Array{2, folder.path("b")}}},
      {"split", "80,20"},
      {"seq_length", 16}};
}

TEST(DatasetConformance, every_built_dataset_passes) {
  const TempFolder documents, batches, conversations, tokens;
  const std::map<std::string, Value> options = {
      {"instruction", instruction_options(conversations)},
      {"megatron", megatron_options(tokens)},
      {"packed", packed_options(documents, "best_fit")},
      {"synthetic", parse_json(R"({"seq_length": 48})", "test")},
      {"text", text_options(documents)},
      {"token_batches", token_batches_options(batches)},
  };
  for (const std::string& name : installed_plugins().names(Dataset::kKind)) {
    const auto found = options.find(name);
    run_suite({Dataset::kKind, name, found == options.end() ? Value::object() : found->second});
  }
  for (const char* method : {"fixed", "length_groups", "none"})
    run_suite({Dataset::kKind, "packed", packed_options(documents, method)});
}

TEST(DatasetConformance, megatron_passes_in_its_other_order_with_all_that_the_end_of_a_document_changes) {
  const TempFolder tokens;
  Value options = megatron_options(tokens);
  options.set("order", "megatron");
  options.set("eod", 9);
  for (const char* const key : {"reset_position_ids", "reset_attention_mask", "eod_mask_loss"}) options.set(key, true);
  run_suite({Dataset::kKind, "megatron", options});
}

TEST(DatasetConformance, documents_of_every_source_are_packed) {
  const TempFolder tokens, conversations;
  Value files = megatron_options(tokens);
  files.set("data_path", Value::Array{tokens.path("a"), tokens.path("b")});  // each document once: no weights
  run_suite({Dataset::kKind, "packed", packed("megatron", files)});
  run_suite({Dataset::kKind, "packed", packed("instruction", instruction_options(conversations))});
}

TEST(DatasetConformance, conversations_of_several_files_pass_with_weights) {
  const TempFolder few, many;
  Value options = instruction_options(many);
  const Value other = instruction_options(few);
  options.set("files", Value::Array{options.find("files")->items()[0], other.find("files")->items()[0]});
  options.set("weights", Value::Array{1, 2.5});
  run_suite({Dataset::kKind, "instruction", options});
  run_suite({Dataset::kKind, "packed", packed("instruction", options)});
}

// tokens.json was made by apply_chat_template with tokenize and return_assistant_tokens_mask.
TEST(DatasetConformance, a_chat_template_gives_the_tokens_and_masks_of_transformers) {
  const std::string data = DRIVETRAIN_GOLDEN_DIR;
  const Value conversations = read_json_file(data + "/chat/conversations.json"),
              cases = read_json_file(data + "/chat/tokens.json");
  const TempFolder folder;
  const Host host;
  size_t compared = 0;
  for (const Value& wanted : cases.items()) {
    const auto number = static_cast<size_t>(wanted.find("conversation")->as_int());
    const std::string line = conversations.items()[number].to_json();
    std::ofstream(folder.path("one.jsonl")) << line << "\n";
    const std::string tokenizer = data + "/tokenizer_files/" + wanted.find("tokenizer")->as_string();
    Value options = parse_json(R"({"seq_length": 4096})", "test");
    options.set("files", Value::Array{folder.path("one.jsonl")});
    options.set("template_file", data + "/chat/chatml_generation.jinja");
    options.set("tokenizer", Value::Object{{"type", "bpe"}, {"params", Value::Object{{"folder", tokenizer}}}});
    const auto dataset = installed_plugins().make<Dataset>(Dataset::kKind, "instruction", options, host.services);
    ModelFacts model;
    model.vocab_size = 1 << 20;
    RunFacts run;
    run.train_batch_size = 1;
    if (line.find("\"content\":null") != std::string::npos) {  // Jinja writes "None", which nobody wants to be learned
      EXPECT_THROW(dataset->open(run, model), Error) << line;
      continue;
    }
    dataset->open(run, model);
    const Documents& documents = *dataset->documents(DataPart::train);
    std::vector<int64_t> tokens(static_cast<size_t>(documents.length(0))), labels(tokens.size());
    documents.read(0, 0, documents.length(0), tokens.data(), labels.data());
    const Value::Array &ids = wanted.find("ids")->items(), &mask = wanted.find("mask")->items();
    ASSERT_EQ(tokens.size() + 1, ids.size()) << tokenizer << " " << number;
    for (size_t i = 0; i < tokens.size(); ++i, ++compared) {
      EXPECT_EQ(tokens[i], ids[i].as_int()) << tokenizer << " " << number << ", token " << i;
      EXPECT_EQ(labels[i], mask[i + 1].as_int() ? ids[i + 1].as_int() : -100)
          << tokenizer << " " << number << ", " << i;
    }
  }
  EXPECT_GT(compared, 1000u);
}

}  // namespace
}  // namespace drivetrain::test
