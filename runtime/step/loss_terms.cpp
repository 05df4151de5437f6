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

#include "base/digest.h"
#include "step/figure_names.h"

namespace drivetrain {
namespace {

constexpr size_t kLongestName = 63;
// What ranks exchange of a figure: its sum and its count, and at first its name, as the characters lie in memory with
// zeros behind them.
constexpr int64_t kSum = 0, kCount = 1, kName = 2, kRecord = kName + (kLongestFigure + 1) / sizeof(double);

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

double SumsOverRanks::digest(const NamedSums& mine) {
  std::string names;
  for (const auto& [name, value] : mine) names += name + '\0';
  return as_number(digest_of(names.data(), names.size()));
}

std::map<std::string, SumOverRanks> SumsOverRanks::add(const NamedSums& mine, int64_t most,
                                                       const std::vector<double>& digests) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<size_t>(world_->size() * most);
  const bool known = digests == digests_ && names_.size() == count;
  const int64_t width = known ? kName : kRecord;
  const at::Tensor table = at::zeros({most, width}, at::TensorOptions(at::kDouble));
  double* at = table.mutable_data_ptr<double>();
  std::vector<at::Tensor> sums;
  for (const auto& [name, value] : mine) {
    if (!known) std::memcpy(at + kName, name.data(), name.size());
    at[kCount] = value.count, at += width;
    sums.push_back(value.sum.to(device_));
  }
  const at::Tensor own = table.to(device_);
  if (!sums.empty()) own.select(1, kSum).narrow(0, 0, static_cast<int64_t>(sums.size())).copy_(at::stack(sums));
  at::Tensor all = own;
  WorkPtr gathered;
  if (world_->size() > 1) {
    all = at::empty({world_->size() * own.numel()}, own.options());
    gathered = world_->all_gather(all, own.view({-1}));
    gathered->wait();
  }
  const at::Tensor host = all.to(at::kCPU);
  if (gathered && !host.is_same(all)) gathered->wait();  // an abort meanwhile: as in Figures
  const double* const records = host.const_data_ptr<double>();
  if (!known) names_.assign(count, "");
  std::map<std::string, SumOverRanks> result;
  for (size_t i = 0; i < count; ++i) {
    const double* const record = records + static_cast<int64_t>(i) * width;
    if (!known) names_[i] = reinterpret_cast<const char*>(record + kName);
    if (names_[i].empty()) continue;
    SumOverRanks& one = result[names_[i]];
    one.sum += record[kSum], one.count += record[kCount];
  }
  digests_ = digests;
  return result;
}

}  // namespace drivetrain
