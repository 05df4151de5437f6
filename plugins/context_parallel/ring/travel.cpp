#include "travel.h"

#include <ATen/ops/zeros.h>

namespace drivetrain::ring {
namespace {

class RoundTheRing : public Travel {
 public:
  RoundTheRing(Exchanges& exchanges, const at::Tensor& k, const at::Tensor& v)
      : keys_(exchanges.keys),
        gradients_(exchanges.gradients),
        ranks_(exchanges.ranks),
        sizes_{2, k.size(0), k.size(1), k.size(2), k.size(3)},
        wide_(wide_type(k)) {
    keys_.allocate(sizes_, k.scalar_type());
    keys_.current().select(0, 0).copy_(k);
    keys_.current().select(0, 1).copy_(v);
    keys_.begin();
  }

  Tensors arrived(int64_t step, const std::vector<Block>& blocks) override {
    keys_.wait();
    const at::Tensor keys = keys_.current();
    if (step + 1 < ranks_) keys_.begin();
    Tensors list;
    for (const Block& block : blocks)
      for (const int64_t which : {0, 1}) list.push_back(rows_of(keys[which], block.rows, 1, block.keys));
    return list;
  }

  void give(int64_t step, const std::vector<Block>& blocks, const Tensors& found) override {
    if (step > 1)
      gradients_.wait();
    else
      gradients_.allocate(sizes_, wide_), gradients_.current().zero_();
    for (size_t i = 0; i < found.size(); ++i)
      rows_of(gradients_.current()[static_cast<int64_t>(i % 2)], blocks[i / 2].rows, 1, blocks[i / 2].keys)
          .add_(found[i]);
    gradients_.begin();  // after the last step: home
  }

  Tensors home() override {
    gradients_.wait();
    return {gradients_.current()[0], gradients_.current()[1]};
  }

 private:
  RingExchange &keys_, &gradients_;
  const int64_t ranks_;
  const std::vector<int64_t> sizes_;
  const at::ScalarType wide_;
};

class Straight : public Travel {
 public:
  Straight(Exchanges& exchanges, const at::Tensor& k, const at::Tensor& v, const RingShape& shape)
      : on_(exchanges), own_{k, v}, shape_(shape) {
    begin_step(1);
  }

  Tensors arrived(int64_t step, const std::vector<Block>& blocks) override {
    const at::Tensor flat = on_.seen.wait();
    if (step + 1 < on_.ranks) begin_step(step + 1);
    return unpacked(flat, blocks);
  }

  void give(int64_t step, const std::vector<Block>& blocks, const Tensors& found) override {
    if (step > 1)
      take(step - 1);
    else
      for (const at::Tensor& x : own_) sums_.push_back(at::zeros(x.sizes(), x.options().dtype(wide_type(x))));
    given_ = step;
    const int64_t reader = reader_of(step);
    on_.returned.begin(found, owner_of(step), numel(blocks_between(shape_, reader, on_.index)), reader, dtype());
  }

  Tensors home() override {
    take(given_);
    return sums_;
  }

 private:
  int64_t owner_of(int64_t step) const { return (on_.index - step + on_.ranks) % on_.ranks; }
  int64_t reader_of(int64_t step) const { return (on_.index + step) % on_.ranks; }
  at::ScalarType dtype() const { return own_[0].scalar_type(); }
  int64_t numel(const Block& block) const {
    return block.rows.count * block.keys.count * own_[0].size(2) * own_[0].size(3);
  }
  // Of k and v of them all.
  int64_t numel(const std::vector<Block>& blocks) const {
    int64_t sum = 0;
    for (const Block& block : blocks) sum += 2 * numel(block);
    return sum;
  }

  void begin_step(int64_t step) {
    Tensors parts;
    for (const Block& block : blocks_between(shape_, reader_of(step), on_.index))
      for (const at::Tensor& x : own_) parts.push_back(rows_of(x, block.rows, 1, block.keys));
    const int64_t owner = owner_of(step);
    on_.seen.begin(parts, reader_of(step), numel(blocks_between(shape_, on_.index, owner)), owner, dtype());
  }

  Tensors unpacked(const at::Tensor& flat, const std::vector<Block>& blocks) const {
    Tensors list;
    int64_t at = 0;
    for (const Block& block : blocks)
      for (int which = 0; which < 2; ++which, at += numel(block))
        list.push_back(flat.narrow(0, at, numel(block))
                           .view({block.rows.count, block.keys.count, own_[0].size(2), own_[0].size(3)}));
    return list;
  }

  // Adds what the reader of this step gave.
  void take(int64_t step) {
    const std::vector<Block> blocks = blocks_between(shape_, reader_of(step), on_.index);
    const Tensors found = unpacked(on_.returned.wait(), blocks);
    for (size_t i = 0; i < found.size(); ++i)
      rows_of(sums_[i % 2], blocks[i / 2].rows, 1, blocks[i / 2].keys).add_(found[i]);
  }

  Exchanges& on_;
  const Tensors own_;
  const RingShape& shape_;
  Tensors sums_;
  int64_t given_ = 0;
};

}  // namespace

std::unique_ptr<Travel> travel_round(Exchanges& exchanges, const at::Tensor& k, const at::Tensor& v) {
  return std::make_unique<RoundTheRing>(exchanges, k, v);
}

std::unique_ptr<Travel> travel_straight(Exchanges& exchanges, const at::Tensor& k, const at::Tensor& v,
                                        const RingShape& shape) {
  return std::make_unique<Straight>(exchanges, k, v, shape);
}

at::Tensor rows_of(const at::Tensor& x, const RowRange& rows, int64_t dimension, const RowRange& columns) {
  return x.narrow(0, rows.first, rows.count).narrow(dimension, columns.first, columns.count);
}

at::ScalarType wide_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace drivetrain::ring
