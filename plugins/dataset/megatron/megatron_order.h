// The order "megatron": exactly the samples that GPTDataset and BlendedDataset of Megatron-Core 0.16.1 give for the
// same files, seed, split, sequence length and number of samples. The index is made when the run starts, or is read
// from where Megatron-Core or an earlier run has kept it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/log.h>

#include "blend.h"
#include "gpt_index.h"
#include "index_cache.h"
#include "order.h"

namespace drivetrain::megatron {

struct MegatronRequest {
  std::vector<double> weights;  // one per member; empty: by number of samples
  bool blended = false;         // false: one file, named without a weight
  std::optional<int64_t> samples;
  int64_t seq_length = 0, part = 0;
  uint32_t seed = 0;
  std::string split_text, index_cache;  // index_cache: a folder, or empty
  bool writes = true;                   // this process keeps new indices there
};

class MegatronOrder : public Order {
 public:
  // Error(config) where Megatron-Core has no such dataset.
  MegatronOrder(const std::vector<Member>& members, const MegatronRequest& request, const Split& split, Log& log);

  int64_t samples() const override { return samples_; }
  void read(int64_t k, int64_t* tokens) override;
  void expect(int64_t k) override;
  Value notes(int64_t samples) override;

 private:
  struct Indexed {
    Member member;
    GptShape shape;
    GptIndex index;
  };
  void add(const Member& member, std::optional<int64_t> asked, const MegatronRequest& request, const Split& split,
           Log& log);
  void blend_by(const std::vector<double>& weights, int64_t samples);
  void blend_by_size(std::optional<int64_t> asked);
  void check_blend();
  BlendPlace turn_of(int64_t k);

  const int64_t seq_length_;
  int64_t samples_ = 0;
  std::vector<Indexed> members_;
  std::optional<GreedyBlend> blend_;
};

}  // namespace drivetrain::megatron
