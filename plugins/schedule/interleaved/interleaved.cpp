// Interleaved one forward, one backward (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training",
// section 2.2): stage r of p holds pieces r, p + r, 2p + r, ..., so a pipeline fills after shorter pieces.
// Micro-batches go through in groups, each piece after piece. We differ: any number of micro-batches, not only
// multiples of p. A last group of fewer than p would leave the stages waiting for each other, forever if it is small;
// its micro-batches are dealt out to the other groups instead. The bubble then stays the paper's, (p - 1) / (v m), for
// a few more activations.
#include <drivetrain/toolkit/pipeline/pipeline.h>

#include <algorithm>

namespace drivetrain {
namespace {

struct InterleavedOptions : PipelineOptions {
  int64_t chunks = 2;
  std::optional<int64_t> group_size;
};

class Interleaved : public PipelineSchedule {
 public:
  using Options = InterleavedOptions;
  static OptionTable options() {
    return pipeline_table<Options>()
        .field("chunks", &Options::chunks, "pieces of the model on every stage")
        .range(1, 1024)
        .field("group_size", &Options::group_size,
               "micro-batches that pass a piece before the first of them enters the next; null: as many as stages")
        .range(1, 32767);
  }
  Interleaved(const Options& options, const Services&)
      : PipelineSchedule(options, options.chunks), group_size_(options.group_size.value_or(options.stages)) {
    if (group_size_ < stages())
      throw fail(ErrorCode::config, "group_size ", group_size_, " is less than the ", stages(),
                 " stages, which would wait for each other; leave it out, or make it ", stages(), " at least");
  }

  // Fewer micro-batches than stages never fill the pipeline.
  std::optional<double> bubble(int64_t micro_batches) const override {
    if (micro_batches < stages()) return {};
    return static_cast<double>(stages() - 1) / static_cast<double>(chunks() * micro_batches);
  }

 protected:
  Program order(int64_t stage, int64_t micro_batches) const override {
    const std::vector<int64_t> groups = group_sizes(micro_batches);
    const Program forward = passes(Op::forward, groups), backward = passes(Op::backward, groups);
    const size_t all = forward.size();
    const int64_t fill = 2 * (stages() - 1 - stage) + (chunks() - 1) * groups.front();
    const size_t ahead = std::min(static_cast<size_t>(fill), all);
    Program list(forward.begin(), forward.begin() + static_cast<int64_t>(ahead));
    for (size_t k = 0; k < all; ++k) {
      if (k + ahead < all) list.push_back(forward[k + ahead]);
      list.push_back(backward[k]);
    }
    return list;
  }

 private:
  // The first is the largest.
  std::vector<int64_t> group_sizes(int64_t micro_batches) const {
    const int64_t full = micro_batches / group_size_, rest = micro_batches % group_size_;
    if (full == 0) return {micro_batches};
    std::vector<int64_t> sizes(static_cast<size_t>(full), group_size_);
    if (rest >= stages())
      sizes.push_back(rest);
    else
      for (int64_t i = 0; i < rest; ++i) ++sizes[static_cast<size_t>(i % full)];
    return sizes;
  }

  // Group by group, piece by piece, micro-batch by micro-batch; backward takes the pieces from the last.
  Program passes(Op op, const std::vector<int64_t>& groups) const {
    Program list;
    int64_t first = 0;
    for (const int64_t size : groups) {
      for (int64_t c = 0; c < chunks(); ++c)
        for (int64_t m = first; m < first + size; ++m)
          list.push_back(instr(op, m, op == Op::forward ? c : chunks() - 1 - c));
      first += size;
    }
    return list;
  }

  int64_t group_size_;
};

}  // namespace
}  // namespace drivetrain

DRIVETRAIN_PLUGIN(drivetrain::Schedule, "interleaved", drivetrain::Interleaved)
