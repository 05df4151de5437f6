// A row of a batch as one number, as tests/golden/make/megatron_core_data.py takes it: 64-bit FNV-1a over tokens,
// labels, positions, and for each position the place in the row where its document begins; int64, little-endian.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <drivetrain/random.h>
#include <drivetrain/step_context.h>

namespace drivetrain::test {

inline std::string row_digest(const Batch& batch, int64_t row) {
  const int64_t S = batch.tokens_BS.size(1);
  const auto row_of = [&](const at::Tensor& t) { return t.const_data_ptr<int64_t>() + row * S; };
  std::vector<int64_t> positions, begins(static_cast<size_t>(S));
  for (int64_t i = 0; i < S; ++i)
    positions.push_back(batch.position_ids_BS.defined() ? row_of(batch.position_ids_BS)[i] : i);
  for (const int64_t begin : batch.cu_seqlens)
    for (int64_t i = begin - row * S; i >= 0 && i < S; ++i) begins[static_cast<size_t>(i)] = begin - row * S;
  std::string bytes;
  for (const int64_t* const values :
       {row_of(batch.tokens_BS), row_of(batch.labels_BS), static_cast<const int64_t*>(positions.data()),
        static_cast<const int64_t*>(begins.data())})
    bytes.append(reinterpret_cast<const char*>(values), static_cast<size_t>(8 * S));
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash_name(bytes)));
  return text;
}

}  // namespace drivetrain::test
