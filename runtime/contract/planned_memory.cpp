#include <drivetrain/planned_memory.h>

namespace drivetrain {

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

AttentionMemory attention_memory(const AttentionShape& s) {
  AttentionMemory memory;
  memory.kept.add(s.query_bytes(), 2).add(s.key_bytes(), 2).add(s.lse_bytes());
  memory.forward.add(s.query_bytes());
  memory.backward.add(s.query_bytes()).add(s.key_bytes(), 2);
  return memory;
}

}  // namespace drivetrain
