// What the token that ends a document means for a row, as Megatron-Core's _get_ltor_masks_and_position_ids says it: the
// next document begins behind it. Pure functions over the seq_length input tokens of a row; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace drivetrain::megatron {

// eod_mask_loss: what is to be predicted behind an end of document does not count. Sets those labels to -100.
void mask_labels(const int64_t* tokens, int64_t count, int64_t eod, int64_t* labels);
// reset_position_ids: 0, 1, 2, ... anew behind each end of document.
void write_positions(const int64_t* tokens, int64_t count, int64_t eod, int64_t* positions);
// reset_attention_mask: appends where documents begin in the row whose first token has the place `begin`, the row's
// begin first. Returns how many documents end in the row.
int64_t append_begins(const int64_t* tokens, int64_t count, int64_t eod, int64_t begin, std::vector<int64_t>& begins);

}  // namespace drivetrain::megatron
