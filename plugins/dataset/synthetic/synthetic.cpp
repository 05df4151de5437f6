// Tokens of a Markov chain that the seed draws: after each token come four others with probabilities 1/2, 1/4, 1/8,
// 1/8. Nothing is stored: a row is a pure function of (seed, part, step, row).
#include <drivetrain/dataset.h>
#include <drivetrain/random.h>
#include <drivetrain/services.h>

#include <ATen/ops/empty.h>

namespace {

using namespace drivetrain;

uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// A whole number below `limit` from 64 random bits, without a bias worth speaking of.
int64_t below(int64_t limit, uint32_t a, uint32_t b) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t bits = uint64_t{b} << 32 | a;
  return static_cast<int64_t>((Wide{bits} * static_cast<uint64_t>(limit)) >> 64);
}

class Synthetic : public Dataset {
 public:
  struct Options {
    int64_t seq_length = 0;
    std::optional<int64_t> vocab, seed;
  };
  static OptionTable options() {
    return table<Options>()
        .field("seq_length", &Options::seq_length, "tokens per row")
        .required()
        .at_least(1)
        .field("vocab", &Options::vocab, "tokens to draw from; default: the model's vocabulary")
        .alias("vocab_size")
        .at_least(1)
        .field("seed", &Options::seed, "of the chain and its walks; default: the run's");
  }

  Synthetic(const Options& options, const Services& services)
      : options_(options), seed_(options.seed ? static_cast<uint64_t>(*options.seed) : services.seed) {}

  DatasetFacts open(const RunFacts&, const ModelFacts& model) override {
    vocab_ = options_.vocab.value_or(model.vocab_size);
    if (vocab_ > model.vocab_size)
      throw fail(ErrorCode::config, "dataset/synthetic: vocab ", vocab_, " is larger than the model's vocab_size ",
                 model.vocab_size, ". Leave vocab out to use the model's");
    DatasetFacts facts;
    facts.seq_length = options_.seq_length;
    facts.validation = true;
    facts.notes = Value::object();
    facts.notes.set("vocab", vocab_);
    facts.notes.set("entropy_nats", 1.75 * 0.69314718055994531);
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const int64_t S = options_.seq_length;
    batch.tokens_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    batch.labels_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    int64_t *tokens = batch.tokens_BS.mutable_data_ptr<int64_t>(),
            *labels = batch.labels_BS.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < request.rows; ++i) walk(request, request.first_row + i, tokens + i * S, labels + i * S);
  }

 private:
  std::array<uint32_t, 4> draw(std::array<uint32_t, 4> counter, uint64_t site) const {
    return philox(counter, {low(seed_ ^ site), high(seed_ ^ site)});
  }

  void walk(const BatchRequest& request, int64_t row, int64_t* tokens, int64_t* labels) const {
    const int64_t S = options_.seq_length;
    const uint64_t site = hash_name(request.part == DataPart::train ? "walk" : "validation walk");
    const auto start = draw({0xffffffff, low(row), low(request.step), high(request.step)}, site);
    int64_t token = below(vocab_, start[0], start[1]);
    for (int64_t s = 0; s < S; ++s) {
      tokens[s] = token;
      const uint32_t bits = draw({low(s), low(row), low(request.step), high(request.step)}, site)[0];
      // Leading ones of three fair bits: 0, 1, 2, 3 with probabilities 1/2, 1/4, 1/8, 1/8.
      labels[s] = token = successor(token, std::countl_one(bits >> 29 << 29));
    }
  }

  int64_t successor(int64_t token, int choice) const {
    const auto bits = draw({low(token), high(token), static_cast<uint32_t>(choice), 0}, hash_name("chain"));
    return below(vocab_, bits[0], bits[1]);
  }

  const Options options_;
  const uint64_t seed_;
  int64_t vocab_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "synthetic", Synthetic)
