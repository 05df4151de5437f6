#include <drivetrain/testkit/checkpoint_store/states.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace drivetrain::test {

at::Tensor as_matrix(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return tensor.reshape({1, 1});
  int64_t columns = 1;
  for (int64_t d = 1; d < tensor.dim(); ++d) columns *= tensor.size(d);
  return tensor.reshape({tensor.size(0), columns});
}

at::Tensor numbers(at::IntArrayRef shape, at::ScalarType dtype, int seed) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  const bool bytes = dtype == at::kByte;
  const at::Tensor all = at::arange(elements, at::kDouble).mul(37).add(11 * seed).remainder(bytes ? 251 : 1013);
  return all.sub(bytes ? 0 : 300).to(dtype).reshape(shape);
}

State small_state(int seed) {
  return {{"block.0.weight", numbers({5, 3, 2}, at::kFloat, seed)},
          {"block.0.weight/exp_avg", numbers({5, 3, 2}, at::kBFloat16, seed + 1)},
          {"counters", numbers({3}, at::kLong, seed + 2)},
          {"scale", numbers({}, at::kDouble, seed + 3)}};
}

State large_state(int seed) {
  State state = small_state(seed);
  state["embedding"] = numbers({67, 131}, at::kFloat, seed + 4);
  state["column"] = numbers({3001}, at::kHalf, seed + 5);
  state["bytes"] = numbers({9, 11}, at::kByte, seed + 6);
  state["empty"] = at::empty({0, 5}, at::kFloat);
  return state;
}

std::vector<Snapshot> cut(const State& state, const std::string& tag, int64_t step, int64_t ranks, unsigned seed) {
  std::mt19937 random(seed);
  const auto up_to = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)) + 1; };
  std::vector<Snapshot> all;
  for (int64_t rank = 0; rank < ranks; ++rank) all.push_back({tag, step, rank, ranks, {}});
  for (const auto& [name, tensor] : state) {
    const at::Tensor matrix = as_matrix(tensor);
    const int64_t columns = matrix.size(1);
    const auto give = [&, &name = name, &tensor = tensor](const StateBox& box) {
      const at::Tensor part = matrix.narrow(0, box.row, box.rows).narrow(1, box.column, box.columns);
      std::vector<StateSlice>& slices = all[static_cast<size_t>(up_to(ranks) - 1)].slices;
      slices.push_back({name, tensor.sizes().vec(), box, at::empty(part.sizes(), part.options()).copy_(part)});
    };
    if (tensor.numel() == 0) give({0, 0, matrix.size(0), columns});
    for (int64_t row = 0; row < matrix.size(0) && columns > 0;) {
      const int64_t rows = up_to(matrix.size(0) - row), left = up_to(columns);
      give({row, 0, rows, left});
      if (left < columns) give({row, left, rows, columns - left});
      row += rows;
    }
  }
  return all;
}

void save(CheckpointStore& store, const State& state, const std::string& tag, int64_t step, int64_t ranks,
          unsigned seed, const Value& facts) {
  std::vector<Value> parts;
  for (Snapshot& snapshot : cut(state, tag, step, ranks, seed)) parts.push_back(store.write(snapshot));
  store.commit(tag, step, facts, parts);
}

State read_all(const Checkpoint& checkpoint) {
  State state;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const at::Tensor whole = at::empty(tensor.shape, tensor.dtype), matrix = as_matrix(whole);
    checkpoint.read(tensor.name, {0, 0, matrix.size(0), matrix.size(1)}, matrix);
    state[tensor.name] = whole;
  }
  return state;
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

bool same(const State& a, const State& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && equal_bits(x.second, y.second); });
}

std::vector<std::string> names(const CheckpointStore& store) {
  std::vector<std::string> tags;
  for (const StoredTag& tag : store.tags()) tags.push_back(tag.tag);
  return tags;
}

}  // namespace drivetrain::test
