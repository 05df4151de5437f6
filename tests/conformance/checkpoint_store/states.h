// States of a few tensors, cut into slices of several ranks, saved and compared. Equal arguments give equal states.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

namespace drivetrain::test {

using State = std::map<std::string, at::Tensor>;

// As StateBox sees a tensor: [rows, columns].
at::Tensor as_matrix(const at::Tensor& tensor);

// Numbers that differ from element to element, and from `seed` to `seed`; whole ones of up to 1013, or of a byte.
at::Tensor numbers(at::IntArrayRef shape, at::ScalarType dtype, int seed);

State small_state(int seed);  // 30 elements in float32 and bfloat16, three counters, a scalar
State large_state(int seed);  // and 60 KB more, of further dtypes; one tensor is empty

// Slices of all ranks, every element in one of them: bands of rows, some of which are cut into columns.
std::vector<Snapshot> cut(const State& state, const std::string& tag, int64_t step, int64_t ranks, unsigned seed);

// All ranks one after the other.
void save(CheckpointStore& store, const State& state, const std::string& tag, int64_t step, int64_t ranks = 2,
          unsigned seed = 1, const Value& facts = Value::object());

State read_all(const Checkpoint& checkpoint);
bool equal_bits(const at::Tensor& a, const at::Tensor& b);  // and dtypes and shapes
bool same(const State& a, const State& b);

std::vector<std::string> names(const CheckpointStore& store);  // of its tags, in its order

}  // namespace drivetrain::test
