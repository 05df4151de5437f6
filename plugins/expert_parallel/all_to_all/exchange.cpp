#include "exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/log.h>

namespace drivetrain::all_to_all {
namespace {

int64_t sum(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

at::Tensor where_not(const at::Tensor& condition, const at::Tensor& values, int64_t otherwise) {
  return at::where(condition, values, at::full_like(values, otherwise));
}

// On a device the host would have to wait for it.
void check_choices(const at::Tensor& experts_TK, int64_t experts) {
  if (!experts_TK.is_cpu() || experts_TK.numel() == 0) return;
  const int64_t last = experts_TK.max().item<int64_t>();
  if (last >= experts)
    throw fail(ErrorCode::plugin, "a router chose expert ", last, " of ", experts,
               "; ids have to be less, or -1 for none");
}

}  // namespace

int64_t Trip::rows_sent() const { return sum(sent); }
int64_t Trip::rows_received() const { return sum(received); }

// A few tokens may well agree.
void OneSided::see(const Trip& trip) {
  constexpr int64_t kManyTokens = 64;
  const auto fullest = std::max_element(trip.sent.begin(), trip.sent.end());
  if (!log_ || *fullest < kManyTokens || *fullest != trip.rows_sent()) return;
  log_->warning(concat("expert_parallel/all_to_all: all ", *fullest,
                       " tokens of a micro-batch of rank 0 chose experts of ", "rank ", fullest - trip.sent.begin(),
                       " of ", trip.sent.size(), " that share them: nothing is ",
                       "dropped, and the others wait for that rank. \"block.N.mlp.router.load\" of metrics.jsonl has ",
                       "the loads; router_aux_loss_coef or router_bias_update_rate of the model keep them equal"));
  log_ = nullptr;
}

at::Tensor wait_for(Travel& travel) {
  const WorkPtr work = std::move(travel.work);
  work->wait();
  return std::move(travel.coming);
}

// Counts of rows and of choices for each rank, and from each: the host reads them at once, so that it waits for a
// device once.
Trip Exchange::trip(const at::Tensor& experts_TK) const {
  const at::NoGradGuard no_grad;
  const int64_t P = ranks_->size;
  check_choices(experts_TK, P * ranks_->experts);
  const at::Tensor rank_P = at::arange(P, experts_TK.options());
  const at::Tensor of_rank = experts_TK.div(ranks_->experts, "floor").unsqueeze(1).eq(rank_P.view({1, P, 1}));
  Trip trip;
  trip.rows = sort_by_expert(where_not(of_rank.any(2), rank_P.expand({experts_TK.size(0), P}), -1), P);
  const at::Tensor choices = at::full_like(rank_P, experts_TK.size(1));
  const at::Tensor sent = at::stack({trip.rows.counts_E, of_rank.sum(at::IntArrayRef{0, 2}), choices}, 1),
                   received = at::empty_like(sent);
  ranks_->group->all_to_all(received, sent)->wait();
  const at::Tensor both = at::cat({sent, received}).to(at::kCPU);
  const int64_t* count = both.const_data_ptr<int64_t>();
  for (int64_t p = 0; p < P; ++p, count += 3) trip.sent.push_back(count[0]);
  for (int64_t p = 0; p < P; ++p, count += 3) {
    trip.received.push_back(count[0]), trip.used += count[1];
    trip.chosen = std::max(trip.chosen, count[2]);
  }
  if (one_sided_) one_sided_->see(trip);
  return trip;
}

Travel Exchange::there(const at::Tensor& values_TC, const Trip& trip) const {
  const int64_t S = trip.rows_sent();
  at::Tensor rows = leaving(S, values_TC);
  at::index_select_out(rows, values_TC, 0, trip.rows.order_R.narrow(0, 0, S).div(ranks_->size, "floor"));
  return travel(rows, trip.sent, trip.received);
}

Travel Exchange::back(const at::Tensor& values_NC, const Trip& trip) const {
  at::Tensor rows = leaving(values_NC.size(0), values_NC);
  rows.copy_(values_NC);
  return travel(rows, trip.received, trip.sent);
}

at::Tensor Exchange::sum_home(const at::Tensor& returned_SC, const Trip& trip) const {
  return sum_over_choices(returned_SC, trip.rows);
}

at::Tensor Exchange::own(const at::Tensor& experts) const {
  const at::Tensor id = experts - ranks_->group->rank() * ranks_->experts;
  return where_not(id.ge(0).logical_and(id.lt(ranks_->experts)), id, -1);
}

// Memory that the other ranks may read where it lies.
at::Tensor Exchange::leaving(int64_t rows, const at::Tensor& like) const {
  if (rows == 0) return at::empty({0, like.size(1)}, like.options());
  return ranks_->group->allocate(rows * like.size(1), like.scalar_type()).view({rows, like.size(1)});
}

Travel Exchange::travel(const at::Tensor& rows, const std::vector<int64_t>& sent,
                        const std::vector<int64_t>& received) const {
  const auto elements = [&](std::vector<int64_t> counts) {
    for (int64_t& count : counts) count *= rows.size(1);
    return counts;
  };
  at::Tensor out = at::empty({sum(received), rows.size(1)}, rows.options());
  return {out, ranks_->group->all_to_all(out, rows, elements(received), elements(sent))};
}

}  // namespace drivetrain::all_to_all
