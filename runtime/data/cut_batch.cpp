#include "data/cut_batch.h"

#include <ATen/ops/cat.h>

#include "data/sequence_cuts.h"

namespace drivetrain {
namespace {

at::Tensor columns(const at::Tensor& rows, const std::vector<RowRange>& positions) {
  Tensors parts;
  for (const RowRange& range : positions) parts.push_back(rows.narrow(1, range.first, range.count));
  return parts.size() == 1 ? parts[0].contiguous() : at::cat(parts, 1);
}

}  // namespace

Batch cut_batch(Batch batch, const std::vector<Builder::SequenceCut>& cuts) {
  if (cuts.empty()) return batch;
  batch.positions = apply_cuts(cuts, {{0, batch.tokens_BS.size(1)}}, batch.cu_seqlens);
  batch.tokens_BS = columns(batch.tokens_BS, batch.positions);
  if (batch.position_ids_BS.defined()) batch.position_ids_BS = columns(batch.position_ids_BS, batch.positions);
  if (batch.labels_BS.defined()) {
    batch.labels_BS = columns(batch.labels_BS, batch.positions);
    batch.valid_tokens = batch.labels_BS.ge(0).sum().item<int64_t>();
  }
  return batch;
}

}  // namespace drivetrain
