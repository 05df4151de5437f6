// The chain of units a GPT is made of. Legend: B batch, S sequence, D hidden. Between units goes {x [B, S, D]}.
#pragma once

#include <memory>

#include <drivetrain/layers.h>

#include "rotary.h"
#include "shape.h"

namespace drivetrain::gpt {

// What a unit before handed on: {x}, or {residual, delta} still to be added.
at::Tensor residual_stream(const Tensors& in);

// Tokens [B, S] to x: word embedding, scaled, learned positions if any, dropout.
UnitPtr make_embedding(const Shape& shape, int64_t length, LayerFactory& layers);

// x to x: attention and MLP, with their norms, added to the residual stream. `length`: see block_spec.
UnitPtr make_block(const Shape& shape, int64_t index, int64_t length, const Rotaries& rotaries, LayerFactory& layers);

// x to the loss: last norm and output layer. `word`: the embedding's matrix if tied, else null.
UnitPtr make_head(const Shape& shape, const ParamPtr& word, LayerFactory& layers);

}  // namespace drivetrain::gpt
