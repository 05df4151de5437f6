#include <drivetrain/error.h>

#include <drivetrain/testkit/strategy/suite.h>

namespace drivetrain::test {

std::string block_model(const std::string& more) {
  return concat(
      R"({"num_layers": 2, "hidden_size": 10, "num_attention_heads": 4, "kv_channels": 6, "ffn_hidden_size": 14, )",
      R"("max_position_embeddings": 16, "vocab_size": )", Chain::kVocabulary, more, "}");
}

std::string full_block_model() {
  return block_model(
      R"(, "position_embedding_type": "rope", "num_query_groups": 2, "hidden_dropout": 0.2, "attention_dropout": 0.3)");
}

TrainedOnce train_once(const FusedBlockMaker& make, at::ScalarType dtype, const std::map<std::string, Keep>& keep,
                       Part part) {
  Chain chain(full_block_model(), make(Host{}).get());
  chain.fill(dtype);
  chain.context.keep_ = keep;
  TrainedOnce result;
  for (int64_t micro = 0; micro < 2; ++micro) {
    chain.set_batch(3, 5, micro);
    result.pass = chain.forward_and_backward(part);
    if (part == Part::input) chain.backward_weight();
  }
  result.slots = slots(chain);
  return result;
}

std::vector<std::string> block_models() {
  std::vector<std::string> all;
  const auto add = [&](const std::string& options) {
    const char* dropout = all.size() % 3 == 2 ? R"(, "hidden_dropout": 0.2, "attention_dropout": 0.3)"
                                              : R"(, "hidden_dropout": 0, "attention_dropout": 0)";
    all.push_back(block_model(options + dropout));
  };
  for (const char* norm : {"layernorm", "rmsnorm"})
    for (const char* positions : {"learned", "rope"})
      for (const char* activation : {"gelu_tanh", "gelu", "swiglu"})
        for (const char* bias : {"true", "false"})
          for (const char* qkv_bias : {"true", "false"})
            for (const int groups : {4, 2})
              add(concat(R"(, "normalization": ")", norm, R"(", "position_embedding_type": ")", positions,
                         R"(", "activation": ")", activation, R"(", "add_bias": )", bias, R"(, "add_qkv_bias": )",
                         qkv_bias, R"(, "num_query_groups": )", groups));
  return all;
}

}  // namespace drivetrain::test
