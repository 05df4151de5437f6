// Layers cut over tensor-parallel ranks. Source: Shoeybi et al. 2019, "Megatron-LM", section 3; positions between them
// cut as in Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models", section 4.2.
//
// Legend: B batch, S sequence, s = S / ranks where positions are cut, else S; I in, O out, D hidden, V vocabulary, N =
// B S rows.
#pragma once

#include <drivetrain/layers.h>

#include "exchange.h"

namespace drivetrain::megatron {

struct Cut {
  std::shared_ptr<const Exchange> exchange;
  bool keep_gathered = false;       // from forward to backward, instead of gathering the input of columns again
  int64_t vocabulary_multiple = 1;  // of the rows that a rank has of the vocabulary

  // Rows that the vocabulary is padded to.
  int64_t padded(int64_t vocabulary) const;
  // What this rank has of it: columns [first, first + valid) of logits, then padding.
  struct Part {
    int64_t first, valid;
  };
  Part part(int64_t vocabulary) const;
  Layout vocabulary_layout(int64_t vocabulary, int64_t dim) const;
};

DimSplit over_ranks(std::vector<int64_t> blocks = {});

// Gradients of `layer`'s parameters are sums over this rank's positions only.
void mark_partial(const Layer& layer);

// The layers of this rank's part, which `inner` makes, and what ranks say to each other around them.
std::shared_ptr<Linear> column_linear(const LinearSpec& spec, const Cut& cut, LayerFactory& inner);
std::shared_ptr<Linear> row_linear(const LinearSpec& spec, const Cut& cut, LayerFactory& inner);
std::shared_ptr<Embedding> vocabulary_embedding(const EmbeddingSpec& spec, const Cut& cut, LayerFactory& inner);
// Of all ranks' heads together: NormOver::heads.
std::shared_ptr<Norm> norm_of_heads(const NormSpec& spec, const Cut& cut, LayerFactory& inner);
std::shared_ptr<LmLoss> vocabulary_lm_loss(const LmLossSpec& spec, const Cut& cut, LayerFactory& inner);

std::shared_ptr<LayerFactory> cut_layers(std::shared_ptr<LayerFactory> inner, const Cut& cut);

}  // namespace drivetrain::megatron
