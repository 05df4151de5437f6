// strategy/fused_block: each switch of a block's description, and some together as model families have them, against a
// block of the same layers by autograd, with an attention by its formula. Also where linear layers have GELU in their
// products, as plain ones have on CUDA.
#include "test_block_pass.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

void compare(const Switch& one, at::ScalarType dtype, Keep keep, double tolerance, int64_t chunk = 0,
             bool cheap = false, const char* gelu = nullptr) {
  SCOPED_TRACE(concat(one.name, ", ", c10::toString(dtype), ", keep ", static_cast<int>(keep), ", chunk ", chunk,
                      cheap ? ", cheap" : ""));
  BlockSpec spec = llama();
  one.set(spec);
  const Passed wanted = pass(spec, false, at::kDouble, Keep::all),
               found = pass(spec, true, dtype, keep, 5, cheap, chunk, gelu);
  ASSERT_FALSE(wanted.fused);
  ASSERT_TRUE(found.fused) << "left to the model";
  EXPECT_EQ(found.names, wanted.names);
  for (const auto& [name, tensor] : wanted.tensors) {
    ASSERT_TRUE(found.tensors.contains(name)) << name;
    const at::Tensor difference = (found.tensors.at(name).to(at::kDouble) - tensor).abs();
    EXPECT_LE(difference.max().item<double>(), tolerance * tensor.abs().max().item<double>()) << name;
  }
}

TEST(FusedBlockSwitches, each_gives_the_numbers_of_a_plain_block_whatever_is_kept) {
  for (const Switch& one : kSwitches)
    for (const Keep keep : {Keep::all, Keep::input, Keep::nothing}) compare(one, at::kDouble, keep, 1e-12);
}

// Chunks that do not divide the five positions, of one, and of more than there are.
TEST(FusedBlockSwitches, each_gives_the_same_numbers_with_the_mlp_in_chunks) {
  for (const Switch& one : kSwitches)
    for (const int64_t chunk : {1, 2, 100})
      for (const Keep keep : {Keep::all, Keep::nothing}) compare(one, at::kDouble, keep, 1e-12, chunk);
}

// The same products of the same rows: a chunk changes what weight gradients are summed in, and nothing before.
TEST(FusedBlockSwitches, a_chunked_mlp_has_the_outputs_of_a_whole_one) {
  for (const Switch& one : kSwitches) {
    SCOPED_TRACE(one.name);
    BlockSpec spec = llama();
    one.set(spec);
    const Passed whole = pass(spec, true, at::kFloat, Keep::all, 64, true);
    const Passed chunked = pass(spec, true, at::kFloat, Keep::all, 64, true, 16);
    EXPECT_LT(chunked.kept, whole.kept);
    for (const auto& [name, tensor] : whole.tensors) {
      const at::Tensor difference = (chunked.tensors.at(name) - tensor).abs();
      EXPECT_LE(difference.max().item<double>(), 1e-5 * tensor.abs().max().item<double>()) << name;
    }
  }
}

// Other code: kernels in place of LibTorch's operators.
TEST(FusedBlockSwitches, each_follows_float64_in_float32) {
  for (const Switch& one : kSwitches) compare(one, at::kFloat, Keep::all, 1e-5);
}

// Of the same shape; norms of queries and keys are of what is kept for attention anyway.
TEST(FusedBlockSwitches, norms_of_queries_and_keys_keep_no_more_than_a_block_without) {
  for (const bool cheap : {false, true}) {
    BlockSpec spec = llama();
    const double without = pass(spec, true, at::kFloat, Keep::all, 64, cheap).kept;
    for (const NormOver over : {NormOver::head, NormOver::heads}) {
      spec.qk_norm = over;
      EXPECT_LE(pass(spec, true, at::kFloat, Keep::all, 64, cheap).kept, 1.01 * without);
    }
  }
}

TEST(FusedBlockSwitches, blocks_keep_the_bytes_that_they_tell_the_plan) {
  for (const Switch& one : kSwitches)
    for (const bool cheap : {false, true}) {
      SCOPED_TRACE(concat(one.name, cheap ? ", cheap" : ""));
      BlockSpec spec = llama();
      one.set(spec);
      const Passed found = pass(spec, true, at::kFloat, Keep::all, 64, cheap);
      EXPECT_NEAR(found.kept, found.told, 0.03 * found.told);
      const Passed chunked = pass(spec, true, at::kFloat, Keep::all, 64, cheap, 16);
      EXPECT_NEAR(chunked.kept, chunked.told, 0.03 * found.told) << "with the MLP in chunks";
    }
}

// Beside what is kept.
TEST(FusedBlockSwitches, blocks_take_the_bytes_that_the_plan_is_told) {
  for (const Switch& one : kSwitches)
    for (const Keep keep : {Keep::all, Keep::nothing})
      for (const bool cheap : {false, true})
        for (const int64_t chunk : {0, 1, 8, 16}) {
          SCOPED_TRACE(concat(one.name, ", keep ", static_cast<int>(keep), cheap ? ", cheap" : "", ", chunk ", chunk));
          BlockSpec spec = llama();
          one.set(spec);
          const Passed found = pass(spec, true, at::kFloat, keep, 32, cheap, chunk);
          EXPECT_NEAR(found.working, found.told_working, 0.01 * found.told_working);
        }
}

const Switch kGelu[] = {
    {"GPT-2", [](BlockSpec& s) { s.activation = "gelu_tanh", s.bias = true; }},
    {"without biases", [](BlockSpec& s) { s.activation = "gelu_tanh"; }},
    {"parallel", [](BlockSpec& s) { s.activation = "gelu_tanh", s.bias = s.parallel = true; }},
};

TEST(FusedBlockSwitches, products_with_gelu_give_the_same_numbers_whatever_is_kept) {
  for (const Switch& one : kGelu)
    for (const Keep keep : {Keep::all, Keep::input, Keep::nothing})
      for (const bool cheap : {false, true})
        for (const int64_t chunk : {0, 2}) {
          GeluAnywhere::forwards = GeluAnywhere::backwards = 0;
          compare(one, at::kDouble, keep, 1e-12, chunk, cheap, "mlp.");
          const int calls = chunk > 0 ? 3 : 1;  // five positions in chunks of two
          EXPECT_EQ(GeluAnywhere::backwards, calls);
          EXPECT_EQ(GeluAnywhere::forwards, chunk > 0 || keep == Keep::nothing ? 2 * calls : calls);
        }
}

// Forward and backward go together: the bits are those of the option off, and what is kept is what backward takes.
TEST(FusedBlockSwitches, a_gpu_without_such_products_computes_as_without_the_option_and_it_is_said_once) {
  for (const Switch& one : kGelu)
    for (const Keep keep : {Keep::all, Keep::input, Keep::nothing})
      for (const bool backward : {false, true})
        for (const int64_t chunk : {0, 2}) {
          SCOPED_TRACE(concat(one.name, ", keep ", static_cast<int>(keep), ", chunk ", chunk, ", backward ", backward));
          BlockSpec spec = llama();
          one.set(spec);
          GeluAnywhere::forwards = GeluAnywhere::backwards = 0;
          GeluAnywhere::missing = [=](int64_t, bool asked) { return asked == backward; };
          const Passed found = pass(spec, true, at::kFloat, keep, 5, backward, chunk, "mlp.");
          GeluAnywhere::missing = nullptr;
          const Passed wanted = pass(spec, true, at::kFloat, keep, 5, backward, chunk);
          EXPECT_EQ(GeluAnywhere::forwards + GeluAnywhere::backwards, 0);
          for (const auto& [name, tensor] : wanted.tensors) EXPECT_TRUE(found.tensors.at(name).equal(tensor)) << name;
          EXPECT_EQ(found.said, std::vector<std::string>{concat(
                                    "strategy/fused_block: cuBLASLt has no products with GELU for the ",
                                    chunk > 0 ? 4 : 10, " rows of block.0 on this GPU; the MLP of such shapes is ",
                                    "computed as without gelu_fusion")});
        }
}

TEST(FusedBlockSwitches, each_chunk_has_gelu_in_products_where_there_are_some_for_its_rows) {
  GeluAnywhere::forwards = GeluAnywhere::backwards = 0;
  GeluAnywhere::missing = [](int64_t rows, bool) { return rows == 2; };  // the last of three chunks
  compare(kGelu[0], at::kDouble, Keep::all, 1e-12, 2, false, "mlp.");
  GeluAnywhere::missing = nullptr;
  EXPECT_EQ(GeluAnywhere::forwards, 2 * 2);
  EXPECT_EQ(GeluAnywhere::backwards, 2);
}

TEST(FusedBlockSwitches, gelu_is_in_products_where_both_layers_and_the_activation_have_it) {
  GeluAnywhere::forwards = GeluAnywhere::backwards = 0;
  for (const char* which : {"mlp.fc", "mlp.proj", "attn."})
    compare(kGelu[0], at::kDouble, Keep::all, 1e-12, 0, false, which);
  for (const Switch& one : kSwitches) compare(one, at::kDouble, Keep::all, 1e-12, 0, false, "mlp.");
  EXPECT_EQ(GeluAnywhere::forwards + GeluAnywhere::backwards, 0) << "others have the pass behind the product";
}

TEST(FusedBlockSwitches, products_with_gelu_keep_the_bytes_that_they_tell_the_plan) {
  for (const bool cheap : {false, true})
    for (const int64_t chunk : {0, 16}) {
      BlockSpec spec = llama();
      kGelu[0].set(spec);
      const Passed found = pass(spec, true, at::kFloat, Keep::all, 64, cheap, chunk, "mlp.");
      EXPECT_NEAR(found.kept, found.told, 0.03 * found.told);
      // Of so small a block the product's own memory is nearly all that backward takes.
      const Passed before = pass(spec, true, at::kFloat, Keep::all, 64, cheap, chunk);
      EXPECT_NEAR(found.on_cuda, 32 << 20, before.on_cuda);
      EXPECT_LT(before.on_cuda, 1 << 20);
    }
}

}  // namespace
}  // namespace drivetrain
