// What a stranger's tokenizer.json may say: patterns that match nothing, post-processors, ids.
#include "test_files.h"

namespace drivetrain::test {
namespace {

class TokenizerJson : public BpeFiles {
 protected:
  // The post-processor of llama3's file is replaced.
  std::vector<int32_t> prefix_with(const std::string& processor) {
    write_json("llama3", "post_processor", processor);
    return open()->facts().prefix;
  }
};

TEST_F(TokenizerJson, a_lookahead_alone_cuts_texts) {
  for (const char* pattern : {"(?=[A-Z])", "\\s*(?=x)", ""}) {
    const std::string split = Value(Value::Object{{"type", "Split"},
                                                  {"pattern", Value::Object{{"Regex", pattern}}},
                                                  {"behavior", "Isolated"},
                                                  {"invert", false}})
                                  .to_json();
    write_json("llama3", "pre_tokenizer",
               R"({"type": "Sequence", "pretokenizers": [)" + split +
                   R"(, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})");
    const auto tokenizer = open();
    std::string back;
    tokenizer->decode(ids_of(*tokenizer, "helloWorld  x xx\n"), back);
    EXPECT_EQ(back, "helloWorld  x xx\n") << pattern;
  }
}

TEST_F(TokenizerJson, what_post_processors_put_in_front_is_the_prefix) {
  write_json("llama3", "version", "\"1.0\"");
  const int32_t begin = *open()->id_of("<|begin_of_text|>"), end = *open()->id_of("<|end_of_text|>");
  const std::string both = concat(R"("cls": ["<|begin_of_text|>", )", begin, R"(], "sep": ["<|end_of_text|>", )", end,
                                  R"(])"),
                    bytes = R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false})",
                    roberta = R"({"type": "RobertaProcessing", "trim_offsets": true, "add_prefix_space": false, )" +
                              both + "}";
  EXPECT_EQ(prefix_with(bytes), Ids{});
  EXPECT_EQ(prefix_with(roberta), Ids{begin});
  EXPECT_EQ(prefix_with(R"({"type": "BertProcessing", )" + both + "}"), Ids{begin});
  EXPECT_EQ(prefix_with(R"({"type": "Sequence", "processors": [)" + bytes + ", " + roberta + "]}"), Ids{begin});
}

TEST_F(TokenizerJson, unknown_post_processors_are_refused_by_name) {
  write_json("llama3", "post_processor", R"({"type": "Reverse"})");
  expect_refused({"tokenizer.json", "post_processor", "Reverse", "TemplateProcessing"});
  write_json("llama3", "post_processor", R"({"type": "Sequence", "processors": [{"type": "Reverse"}]})");
  expect_refused({"tokenizer.json", "post_processor", "Reverse"});
  write_json("llama3", "post_processor", R"({"type": "RobertaProcessing", "sep": ["</s>", 2]})");
  expect_refused({"tokenizer.json", "post_processor", "cls"});
  write_json("llama3", "post_processor", R"({"type": "BertProcessing", "sep": ["</s>", 2], "cls": []})");
  expect_refused({"tokenizer.json", "post_processor", "cls"});
}

TEST_F(TokenizerJson, an_id_far_behind_the_number_of_tokens_is_refused) {
  const auto write_added = [&](int id) {
    write_json("llama3", "added_tokens", concat(R"([{"id": )", id, R"(, "content": "<far>", "special": true}])"));
  };
  write_added(65536);
  EXPECT_EQ(open()->facts().vocab_size, 65537);
  for (const int id : {80'000, 99'999'999, 2'000'000'000}) {
    write_added(id);
    expect_refused({"tokenizer.json", "<far>", std::to_string(id)});
  }
  write_pair({});
  std::filesystem::remove(folder_ / "tokenizer.json");
  write("vocab.json", "{\"a\": 99999999}");
  write("merges.txt", "");
  expect_refused({"vocab.json", "\"a\"", "99999999"});
}

}  // namespace
}  // namespace drivetrain::test
