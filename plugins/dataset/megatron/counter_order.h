// The order "counter": the tokens of a part, file after file in their order, are cut every seq_length tokens; the
// samples of an epoch come in a keyed permutation (permutation.h), another one in each epoch, and the files of a blend
// in turns (blend.h). Nothing is kept in memory, and any sample is found at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "blend.h"
#include "order.h"

namespace drivetrain::megatron {

class CounterOrder : public Order {
 public:
  // `weights`: one per member; empty: by number of samples. `part_name`: for messages. Error(config) for a member with
  // less than one sample.
  CounterOrder(const std::vector<Member>& members, const std::vector<double>& weights, int64_t seq_length,
               uint64_t seed, int64_t part);

  int64_t samples() const override { return -1; }
  void read(int64_t k, int64_t* tokens) override;
  void expect(int64_t k) override;
  Value notes(int64_t samples) override;
  std::vector<std::string> epochs_begun(int64_t first, int64_t end) override;

 private:
  struct Stream {
    std::shared_ptr<const TokenFile> file;
    int64_t first_byte = 0, tokens = 0, samples = 0;  // of one epoch
    Range range;
  };
  struct Place {
    const Stream* stream = nullptr;
    int64_t byte = 0;
  };
  static std::vector<double> weights_of(const std::vector<Stream>& streams, const std::vector<double>& weights);
  std::vector<Stream> streams_of(const std::vector<Member>& members) const;
  Place place(int64_t k) const;

  const int64_t seq_length_, part_;
  const uint64_t seed_;
  const std::vector<Stream> streams_;
  const TreeBlend blend_;
};

}  // namespace drivetrain::megatron
