#include "step/loss_terms.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/dtype_name.h>

namespace drivetrain {
namespace {

constexpr size_t kLongestName = 63;
// What ranks exchange of a term: its name, one number per character and zeros behind them, and its sum.
constexpr int64_t kRecord = static_cast<int64_t>(kLongestName) + 1;

}  // namespace

void check_loss_term(const std::string& name, const at::Tensor& value, double weight) {
  const auto refuse = [&](const auto&... why) { throw fail(ErrorCode::plugin, "add_loss(\"", name, "\"): ", why...); };
  if (name.empty() || name.size() > kLongestName)
    refuse("wanted a name of 1 to ", kLongestName, " characters, found ", name.size());
  if (!value.defined() || value.numel() != 1)
    refuse("wanted one element, found ",
           value.defined() ? concat("a tensor of shape ", value.sizes()) : std::string("no tensor"),
           "; take the mean over the tokens");
  // Tokens times the loss scale are more than 16 bits can hold.
  if (value.scalar_type() != at::kFloat && value.scalar_type() != at::kDouble)
    refuse("wanted float32 or float64, found ", dtype_name(value.scalar_type()), "; compute the term in float32");
  if (!std::isfinite(weight)) refuse("wanted a finite weight, found ", weight);
}

at::Tensor LossTerms::add(const std::string& name, const at::Tensor& value, double weight, int64_t micro,
                          const at::Tensor& labels, int64_t ranks, bool counts) {
  check_loss_term(name, value, weight);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = labels.ge(0).sum().to(at::kDouble);
  if (counts) {
    const at::Tensor term = value.detach().reshape({}).to(at::kDouble).mul(tokens).mul(static_cast<double>(ranks));
    at::Tensor& sum = terms_[name][micro];
    sum = sum.defined() ? sum.add(term) : term;
  }
  return tokens.mul(weight * seed_);
}

LossTermSums LossTerms::sums() const {
  const at::NoGradGuard no_grad;
  LossTermSums sums;
  for (const auto& [name, micros] : terms_)
    for (const auto& [micro, term] : micros) {
      at::Tensor& sum = sums[name];
      sum = sum.defined() ? sum.add(term) : term;
    }
  return sums;
}

std::map<std::string, double> sum_over_ranks(const LossTermSums& mine, int64_t most, const GroupPtr& world,
                                             const at::Device& device) {
  const at::NoGradGuard no_grad;
  const at::Tensor names = at::zeros({most, kRecord}, at::TensorOptions(at::kDouble));
  int64_t row = 0;
  for (const auto& [name, sum] : mine)
    std::copy(name.begin(), name.end(), names.mutable_data_ptr<double>() + kRecord * row++);
  const at::Tensor records = names.to(device);
  row = 0;
  for (const auto& [name, sum] : mine) records.select(0, row++).select(0, kRecord - 1).copy_(sum);

  at::Tensor all = records;
  WorkPtr gathered;
  if (world->size() > 1) {
    all = at::empty({world->size() * most * kRecord}, records.options());
    gathered = world->all_gather(all, records.view({-1}));
    gathered->wait();
  }
  const at::Tensor host = all.to(at::kCPU);
  if (gathered && !host.is_same(all)) gathered->wait();  // an abort meanwhile: as in Figures
  std::map<std::string, double> sums;
  const double* record = host.const_data_ptr<double>();
  for (int64_t i = 0; i < world->size() * most; ++i, record += kRecord) {
    std::string name;
    for (int64_t c = 0; c < kRecord - 1 && record[c] != 0; ++c) name += static_cast<char>(record[c]);
    if (!name.empty()) sums[name] += record[kRecord - 1];
  }
  return sums;
}

}  // namespace drivetrain
