#include "step/loss_terms.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/dtype_name.h>

#include "step/figure_names.h"

namespace drivetrain {
namespace {

constexpr size_t kLongestName = 63;
// What ranks exchange of a name: its characters as they lie in memory with zeros behind them, its count and its sum.
constexpr int64_t kCount = (kLongestFigure + 1) / sizeof(double), kSum = kCount + 1, kRecord = kSum + 1;

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

NamedSums LossTerms::sums() const {
  const at::NoGradGuard no_grad;
  NamedSums sums;
  for (const auto& [name, micros] : terms_)
    for (const auto& [micro, term] : micros) {
      at::Tensor& sum = sums[kLossTermFigures + name].sum;
      sum = sum.defined() ? sum.add(term) : term;
    }
  return sums;
}

std::map<std::string, SumOverRanks> sum_over_ranks(const NamedSums& mine, int64_t most, const GroupPtr& world,
                                                   const at::Device& device) {
  const at::NoGradGuard no_grad;
  const at::Tensor known = at::zeros({most, kRecord}, at::TensorOptions(at::kDouble));
  double* at = known.mutable_data_ptr<double>();
  std::vector<at::Tensor> sums;
  for (const auto& [name, value] : mine) {
    std::memcpy(at, name.data(), name.size());
    at[kCount] = value.count, at += kRecord;
    sums.push_back(value.sum.to(device));
  }
  const at::Tensor own = known.to(device);
  if (!sums.empty()) own.select(1, kSum).narrow(0, 0, static_cast<int64_t>(sums.size())).copy_(at::stack(sums));
  at::Tensor all = own;
  WorkPtr gathered;
  if (world->size() > 1) {
    all = at::empty({world->size() * own.numel()}, own.options());
    gathered = world->all_gather(all, own.view({-1}));
    gathered->wait();
  }
  const at::Tensor host = all.to(at::kCPU);
  if (gathered && !host.is_same(all)) gathered->wait();  // an abort meanwhile: as in Figures
  std::map<std::string, SumOverRanks> result;
  const double* record = host.const_data_ptr<double>();
  for (int64_t i = 0; i < world->size() * most; ++i, record += kRecord)
    if (const auto* name = reinterpret_cast<const char*>(record); *name != '\0') {
      SumOverRanks& one = result[name];
      one.sum += record[kSum], one.count += record[kCount];
    }
  return result;
}

}  // namespace drivetrain
