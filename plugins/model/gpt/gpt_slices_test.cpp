// What a rank with a part of the sequence computes at both ends of the chain, and blocks whose activations are computed
// again.
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>

#include "test_model.h"

namespace drivetrain::test {
namespace {

std::string small(const std::string& more) {
  return R"({"num_layers": 2, "hidden_size": 24, "num_attention_heads": 4, "num_query_groups": 2, "vocab_size": 31,
             "max_position_embeddings": 16, "hidden_dropout": 0.3)" +
         more + "}";
}

at::Tensor tokens(int64_t rows, int64_t length) {
  return at::randint(31, {rows, length}, at::TensorOptions(at::kLong));
}

// The columns of x [B, S, ...] that the ranges name.
at::Tensor slice(const at::Tensor& x, const std::vector<RowRange>& ranges) {
  Tensors parts;
  for (const RowRange& range : ranges) parts.push_back(x.narrow(1, range.first, range.count));
  return at::cat(parts, 1);
}

// Words that come back cut to some positions.
struct CutWords : Embedding {
  CutWords(std::shared_ptr<Embedding> inner, std::vector<RowRange> here)
      : inner(std::move(inner)), here(std::move(here)) {}
  std::vector<ParamPtr> params() const override { return inner->params(); }
  at::Tensor forward(const at::Tensor& ids, StepContext& ctx) override { return slice(inner->forward(ids, ctx), here); }
  std::shared_ptr<Embedding> inner;
  std::vector<RowRange> here;
};

struct CutLayers : LayerFactory {
  CutLayers(std::shared_ptr<LayerFactory> inner, std::vector<RowRange> here)
      : inner(std::move(inner)), here(std::move(here)) {}
  std::shared_ptr<Linear> linear(const LinearSpec& spec) override { return inner->linear(spec); }
  std::shared_ptr<Embedding> embedding(const EmbeddingSpec& spec) override {
    const auto made = inner->embedding(spec);
    return spec.vocabulary ? std::make_shared<CutWords>(made, here) : made;
  }
  std::shared_ptr<Norm> norm(const NormSpec& spec) override { return inner->norm(spec); }
  std::shared_ptr<AttentionLayer> attention(const AttentionSpec& spec) override { return inner->attention(spec); }
  std::shared_ptr<LmLoss> lm_loss(const LmLossSpec& spec) override { return inner->lm_loss(spec); }
  std::shared_ptr<LayerFactory> inner;
  std::vector<RowRange> here;
};

const std::vector<RowRange> kSlices[] = {{{0, 4}}, {{4, 4}}, {{0, 2}, {8, 2}}, {{9, 1}, {3, 2}}};

TEST(GptEmbedding, of_some_positions_is_that_slice_of_the_whole_with_its_dropout_and_gradients) {
  const auto model = gpt(small(""));
  const at::Tensor ids = tokens(3, 10);
  for (const std::vector<RowRange>& here : kSlices) {
    BuiltModel whole(*model);
    const auto cut_layers = std::make_shared<CutLayers>(whole.layers, here);
    BuiltModel batch_cut(*model), words_cut(*model, *cut_layers);
    batch_cut.context.positions_ = here;
    words_cut.context.activation_positions_ = here;
    const auto embed = [](BuiltModel& built, const at::Tensor& ids, Saved& saved) {
      built.fill_by_rule();
      built.context.batch_ = {ids, {}, 5, 0, built.context.positions_};
      return built.chain.units[0]->forward({ids}, built.context, saved)[0];
    };
    Saved a, b, c;
    const at::Tensor wanted = slice(embed(whole, ids, a), here);
    EXPECT_TRUE(at::equal(embed(batch_cut, slice(ids, here), b), wanted));
    const at::Tensor found = embed(words_cut, ids, c);
    EXPECT_TRUE(at::equal(found, wanted));

    batch_cut.chain.units[0]->backward({wanted}, batch_cut.context, b);
    words_cut.chain.units[0]->backward({wanted}, words_cut.context, c);
    const auto batch_params = batch_cut.chain.units[0]->params(), word_params = words_cut.chain.units[0]->params();
    for (size_t i = 0; i < batch_params.size(); ++i) {
      // Equal tokens are added up in order of position, which these slices do not keep.
      EXPECT_TRUE(at::allclose(batch_params[i]->grad, word_params[i]->grad, 1e-12, 1e-12)) << batch_params[i]->name;
      EXPECT_GT(batch_params[i]->grad.abs().sum().item<double>(), 0) << batch_params[i]->name;
    }
  }
}

TEST(GptEmbedding, counts_the_length_of_a_sequence_over_all_its_ranks) {
  const auto model = gpt(small(""));
  BuiltModel built(*model);
  built.fill_by_rule();
  built.context.positions_ = {{0, 2}, {14, 2}};
  built.forward(tokens(1, 4), {});
  built.context.positions_ = {{0, 2}, {15, 2}};
  EXPECT_EQ(error_of([&] { built.forward(tokens(1, 4), {}); }),
            "model/gpt: a sequence of 17 tokens is longer than max_position_embeddings 16");
}

TEST(GptEmbedding, refuses_texts_that_the_short_factors_of_longrope_are_not_for) {
  const auto model = gpt(small(R"(, "position_embedding_type": "rope", "rope_scaling": {"rope_type": "longrope",
      "short_factor": [1, 1, 1], "long_factor": [2, 2, 2], "original_max_position_embeddings": 8})"));
  BuiltModel built(*model);
  built.fill_by_rule();
  built.forward(tokens(1, 8), {});
  EXPECT_NE(error_of([&] { built.forward(tokens(1, 9), {}); }).find("a text of 9 tokens is longer than the 8 of"),
            std::string::npos);
}

// The model's own blocks; the others have a suite of theirs.
TEST(GptBlock, computes_regions_again_to_the_bit) {
  for (const char* more : {R"(, "attention_dropout": 0.2)",
                           R"(, "attention_dropout": 0.2, "activation": "swiglu", "position_embedding_type": "rope",
                              "normalization": "rmsnorm", "add_bias": false)"}) {
    const auto model = gpt(small(more));
    const at::Tensor ids = tokens(2, 9), labels = tokens(2, 9);
    const auto step = [&](const std::map<std::string, Keep>& keep, Part part) {
      BuiltModel built(*model);
      built.fill_by_rule();
      built.context.keep_ = keep;
      Tensors all = {built.forward(ids, labels)};
      built.backward(part);
      for (const ParamPtr& param : built.chain.all()) all.push_back(param->grad);
      return all;
    };
    const Tensors wanted = step({}, Part::whole);
    constexpr Keep all[] = {Keep::all, Keep::input, Keep::nothing};
    for (const Keep norm : all)
      for (const Keep core : all)
        for (const Keep act : all)
          for (const Part part : {Part::whole, Part::input}) {
            const Tensors found = step({{"norm", norm}, {"attn.core", core}, {"mlp.act", act}}, part);
            for (size_t i = 0; i < wanted.size(); ++i)
              EXPECT_TRUE(at::equal(found[i], wanted[i]))
                  << i << " of norm " << int(norm) << ", core " << int(core) << ", act " << int(act);
          }
  }
}

TEST(GptFacts, every_unit_costs_something_and_the_embedding_least) {
  const auto model = gpt(R"({"num_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "vocab_size": 50257,
                            "max_position_embeddings": 1024})");
  const BuiltModel built(*model);
  std::map<std::string, double> costs;
  for (const UnitPtr& unit : built.chain.units) costs[unit->name()] = model->cost(*unit);
  EXPECT_GT(costs["embedding"], 0);
  EXPECT_LT(costs["embedding"], costs["block.0"] / 100);
  EXPECT_EQ(costs["block.0"], costs["block.11"]);
  EXPECT_NEAR(costs["head"] / costs["block.0"], 50257. / (12 * 768 + 1024), 1e-12);
}

// The model's own blocks, by their shape; that these are the bytes, the fused block's test measures.
TEST(GptBlock, tells_what_it_leaves_for_backward) {
  const auto keeps = [](const std::string& options) {
    const auto model = gpt(options);
    const BuiltModel built(*model);
    EXPECT_FALSE(built.chain.units.front()->is_block());
    EXPECT_FALSE(built.chain.units.back()->is_block());
    EXPECT_TRUE(built.chain.units.at(1)->is_block());
    return built.chain.units.at(1)->keeps().value();
  };
  const UnitKeeps gated = keeps(small(R"(, "activation": "swiglu", "kv_channels": 10, "ffn_hidden_size": 50)"));
  EXPECT_EQ(gated.all.shared, 2 * (4 + 2) * 10 + 2 * 50 + 50);
  EXPECT_EQ(gated.all.whole, 4 * gated.inputs.whole);
  ASSERT_EQ(gated.regions.size(), 3u);
  EXPECT_EQ(gated.regions[1].name, "attn.core");
  EXPECT_EQ(gated.regions[1].freed.shared, 40);
}

}  // namespace
}  // namespace drivetrain::test
