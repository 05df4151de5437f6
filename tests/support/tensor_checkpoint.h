// A checkpoint of tensors in memory, and the tensors of any checkpoint. For tests of formats.
#pragma once

#include <ATen/ops/full.h>

#include <map>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::test {

using NamedTensors = std::map<std::string, at::Tensor>;

inline at::Tensor as_matrix(const at::Tensor& t) {
  return t.dim() == 0 ? t.view({1, 1}) : t.dim() == 1 ? t.unsqueeze(1) : t.flatten(1);
}

class TensorCheckpoint final : public Checkpoint {
 public:
  explicit TensorCheckpoint(NamedTensors tensors, Value facts = Value::object())
      : tensors_(std::move(tensors)), facts_(std::move(facts)) {}
  const Value& facts() const override { return facts_; }
  std::vector<StoredTensor> tensors() const override {
    std::vector<StoredTensor> list;
    for (const auto& [name, t] : tensors_) list.push_back({name, t.sizes().vec(), t.scalar_type()});
    return list;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    into.copy_(as_matrix(tensors_.at(name)).narrow(0, box.row, box.rows).narrow(1, box.column, box.columns));
  }
  std::vector<std::string> verify() const override { return {}; }

 private:
  const NamedTensors tensors_;
  const Value facts_;
};

inline NamedTensors read_tensors(const Checkpoint& checkpoint) {
  NamedTensors tensors;
  for (const StoredTensor& t : checkpoint.tensors()) {
    int64_t rows = t.shape.empty() ? 1 : t.shape[0], columns = 1;
    for (size_t i = 1; i < t.shape.size(); ++i) columns *= t.shape[i];
    const at::Tensor values = at::full({rows, columns}, 77, at::TensorOptions(t.dtype));
    checkpoint.read(t.name, {0, 0, rows, columns}, values);
    tensors[t.name] = values.view(t.shape);
  }
  return tensors;
}

}  // namespace drivetrain::test
