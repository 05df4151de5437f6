// Attention of the positions that are new in a generation over those of earlier passes. Thread: main. Stream: the
// current one. No autograd.
#pragma once

#include <string>

#include <drivetrain/attention.h>
#include <drivetrain/step_context.h>

namespace drivetrain {

// q [B, S, H, C], k and v [B, S, G, C] of the layer `name`, as AttentionLayer::forward has them: appends k and v to the
// cache and returns what the new queries see of all keys, [B, S, H, C]. `args` are those of whole sequences. Rows with
// equally many earlier positions are computed in one call of the plugin, others row by row.
//
// A plugin without the ability q_offset is called for one query at a time, with the keys that this query sees and no
// mask, if it may be called with a part of the keys (partial_keys, non_causal). Error(config) for one that offers
// neither, for attention that is not causal, and for several documents in a row; in the first pass, too.
at::Tensor cached_attention(const Attention& attention, const std::string& name, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args, KeyValueCache& cache);

}  // namespace drivetrain
