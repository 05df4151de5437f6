#include <drivetrain/planned_memory.h>

#include <drivetrain/layers.h>

namespace drivetrain {

TakesVisitMemory::~TakesVisitMemory() = default;
TakesAttentionMemory::~TakesAttentionMemory() = default;
HoldsUnits::~HoldsUnits() = default;
HasOneMemory::~HasOneMemory() = default;
MovesInputs::~MovesInputs() = default;
TakesHostMemory::~TakesHostMemory() = default;

TensorSizes& TensorSizes::add(double bytes, double count) {
  if (bytes > 0 && count != 0) counts_[bytes] += count;
  return *this;
}

TensorSizes& TensorSizes::add(const TensorSizes& others, double times) {
  for (const auto& [bytes, count] : others.counts_) add(bytes, count * times);
  return *this;
}

double TensorSizes::bytes() const {
  double sum = 0;
  for (const auto& [bytes, count] : counts_) sum += bytes * count;
  return sum;
}

namespace {

AttentionMemory memory_of(const TakesAttentionMemory* says, const AttentionShape& s) {
  if (says) return says->attention_memory(s);
  AttentionMemory memory;
  memory.kept.add(s.query_bytes(), 2).add(s.key_bytes(), 2).add(s.lse_bytes());
  memory.forward.add(s.query_bytes());
  memory.backward.add(s.query_bytes()).add(s.key_bytes(), 2);
  return memory;
}

}  // namespace

AttentionMemory attention_memory(const Attention& attention, const AttentionShape& shape) {
  return memory_of(dynamic_cast<const TakesAttentionMemory*>(&attention), shape);
}

AttentionMemory attention_memory(const AttentionLayer& layer, const AttentionShape& shape) {
  return memory_of(dynamic_cast<const TakesAttentionMemory*>(&layer), shape);
}

}  // namespace drivetrain
