#include "report/shape_advice.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

constexpr int64_t kTileRows = 128, kTileColumns = 256, kRowBytes = 128, kHeadStep = 32;
constexpr double kWorthTelling = 1.05;  // a gain below is noise

struct Gpu {
  const char* name;
  int64_t multiprocessors;
};
constexpr Gpu kGpus[] = {{"A100", 108}, {"H100", 132}};

int64_t parts(int64_t whole, int64_t size) { return (whole + size - 1) / size; }
int64_t rounded(int64_t value, int64_t step) { return parts(value, step) * step; }
double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// Of all products of a step: forward, and backward for inputs and for weights. Tiles of all experts run in the same
// waves, which are many.
double share_of(const ShapeFacts& facts, int64_t tokens, int64_t multiprocessors) {
  double work = 0, time = 0;
  for (const MatrixShape& p : facts.products) {
    const int64_t rows = p.rows_of_group(tokens);
    const double one = static_cast<double>(p.count * p.chosen) * static_cast<double>(p.out) * static_cast<double>(p.in);
    for (const auto& [m, n] : {std::pair(rows, p.out), std::pair(rows, p.in), std::pair(p.out, p.in)})
      work += one, time += one / (p.groups > 1 ? tile_share(m, n) : wave_share(m, n, multiprocessors));
  }
  return time > 0 ? work / time : 1;
}

std::string times(double gain) { return formatted("%.2f times", gain); }

void add_alignment(const ShapeFacts& facts, std::vector<std::string>& lines) {
  const int64_t step = kRowBytes / std::max<int64_t>(facts.bytes, 1);
  std::vector<int64_t> told;
  for (const MatrixShape& p : facts.products)
    for (const int64_t size : {p.out, p.in}) {
      if (size % step == 0 || std::find(told.begin(), told.end(), size) != told.end()) continue;
      told.push_back(size);
      const int64_t better = rounded(size, step);
      const bool slow = size * facts.bytes % 16 != 0;
      lines.push_back(
          concat("shape: ", p.first, " has ", p.out, " x ", p.in, " elements on a rank, and ", size,
                 " is no multiple of ", step, ": tensor cores read ", kRowBytes, " bytes at a time",
                 slow ? ", and where rows do not begin at 16 bytes products run at a fraction of their rate" : "", "; ",
                 better, " would be ", formatted("%+.2f %%", 100 * (ratio(better, size) - 1)), " of work"));
    }
}

void add_heads(const ShapeFacts& facts, std::vector<std::string>& lines) {
  const int64_t padded = padded_head(facts.head_dim);
  if (facts.head_dim == 0 || padded == facts.head_dim) return;
  lines.push_back(concat("shape: heads of ", facts.head_dim, " elements are computed as ", padded,
                         ": attention would be up to ", times(ratio(padded, facts.head_dim)), " as fast with heads of ",
                         padded == 32 || facts.head_dim % 32 >= 16 ? padded : padded - 32,
                         " or another multiple of 32"));
}

// The micro-batch up to twice its size that fills the waves best.
void add_waves(const ShapeFacts& facts, std::vector<std::string>& lines) {
  if (facts.products.empty() || facts.rows == 0) return;
  const int64_t per_row = facts.rows / std::max<int64_t>(facts.micro_batch, 1);
  for (const Gpu& gpu : kGpus) {
    const double now = share_of(facts, facts.rows, gpu.multiprocessors);
    int64_t best = facts.micro_batch;
    double most = now;
    for (int64_t micro = 1; micro <= 2 * facts.micro_batch; ++micro)
      if (const double share = share_of(facts, micro * per_row, gpu.multiprocessors); share > most + 1e-9)
        best = micro, most = share;
    if (most < now * kWorthTelling) continue;
    lines.push_back(concat("shape: with micro-batch ", facts.micro_batch, " the tiles of the step's products fill ",
                           formatted("%.0f %%", 100 * now), " of the waves on the ", gpu.multiprocessors,
                           " multiprocessors of an ", gpu.name, ", with ", best, " ", formatted("%.0f %%", 100 * most),
                           ": they would be up to ", times(most / now), " as fast per token"));
  }
}

}  // namespace

int64_t padded_head(int64_t size) { return rounded(size, kHeadStep); }

int64_t tiles_of(int64_t m, int64_t n) { return parts(m, kTileRows) * parts(n, kTileColumns); }

double tile_share(int64_t m, int64_t n) { return ratio(m, rounded(m, kTileRows)) * ratio(n, rounded(n, kTileColumns)); }

double wave_share(int64_t m, int64_t n, int64_t multiprocessors, double together) {
  const auto places = static_cast<double>(multiprocessors), tiles = static_cast<double>(tiles_of(m, n)) * together;
  return tile_share(m, n) * tiles / (std::ceil(tiles / places) * places);
}

// Rows are what a rank reads: a cut between layers alone is undone before a product.
ShapeFacts shape_facts(const PreparedRun& run) {
  ShapeFacts facts;
  int64_t positions = 0;
  for (const RowRange& range : run.plan.positions.batch) positions += range.count;
  facts.micro_batch = run.plan.batch.micro_batch_size;
  facts.bytes = static_cast<int64_t>(run.plan.run.compute_bytes);
  facts.head_dim = run.plan.model.head_dim.value_or(0);
  facts.rows = facts.micro_batch * (positions > 0 ? positions : run.plan.run.seq_length.value_or(0));
  facts.products = matrix_products(run);
  return facts;
}

std::vector<std::string> shape_advice(const ShapeFacts& facts) {
  std::vector<std::string> lines;
  add_alignment(facts, lines);
  add_heads(facts, lines);
  add_waves(facts, lines);
  return lines;
}

}  // namespace drivetrain
