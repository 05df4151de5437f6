#include <drivetrain/toolkit/sharding/planned_matrices.h>

#include <algorithm>
#include <numeric>

#include <drivetrain/plan_context.h>
#include <drivetrain/schedule.h>

namespace drivetrain {

std::vector<int64_t> owners_of(const std::vector<WholeTensor>& tensors, int64_t ranks) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return tensors[a].work > tensors[b].work; });
  std::vector<double> work(static_cast<size_t>(ranks), 0);
  std::vector<int64_t> owners(tensors.size(), 0);
  for (const size_t i : order) {
    const auto least = std::min_element(work.begin(), work.end());
    owners[i] = least - work.begin();
    *least += tensors[i].work;
  }
  return owners;
}

std::vector<std::vector<size_t>> rounds_of(const std::vector<WholeTensor>& tensors, const std::vector<int64_t>& owners,
                                           int64_t ranks, int64_t limit) {
  std::vector<std::vector<size_t>> rounds;
  std::vector<size_t> round(static_cast<size_t>(ranks), 0);
  std::vector<int64_t> filled(static_cast<size_t>(ranks), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto owner = static_cast<size_t>(owners[i]);
    const int64_t numel = tensors[i].rows * tensors[i].columns;
    if (filled[owner] > 0 && filled[owner] + numel > limit) ++round[owner], filled[owner] = 0;
    filled[owner] += numel;
    if (round[owner] >= rounds.size()) rounds.resize(round[owner] + 1);
    rounds[round[owner]].push_back(i);
  }
  return rounds;
}

PlannedMatrices::PlannedMatrices(const PlannedUpdate& update, const WholeTensors::Cut& cut,
                                 const WholeTensors::Options& options)
    : options_(options) {
  const Mesh& mesh = update.stage.mesh;
  for (const Axis& axis : mesh.axes())
    if (axis.name != Schedule::kAxis) axes_.push_back(axis), ranks_ *= axis.size;
  double trained = 0;
  std::map<std::string, ParamPtr> params;  // by name: the order of WholeTensors
  for (const ParamPtr& param : update.stage.units.all()) {
    if (!param->trainable) continue;
    trained += static_cast<double>(param->layout.local_numel(mesh));
    params[param->name] = param;
  }
  const double kept = trained > 0 ? std::min(1.0, update.elements / trained) : 1;
  std::set<std::string> all;
  for (const Axis& axis : axes_) all.insert(axis.name);
  for (const auto& [name, param] : params) {
    const auto local = static_cast<double>(param->layout.local_numel(mesh));
    const double share = kept * local / static_cast<double>(std::max<int64_t>(param->layout.global_numel(), 1));
    std::set<std::string> cutting;
    for (const DimSplit& dim : param->layout.dims) cutting.insert(dim.axes.begin(), dim.axes.end());
    double flat = 1;  // ranks that hold ranges: as many as it takes, of those that differ in their data, nearest first
    for (const Axis& axis : axes_)
      if (axis.joins_gradients && flat * kept < 0.75 && cutting.insert(axis.name).second)
        flat *= static_cast<double>(axis.size);
    for (WholeTensor& tensor : cut(param)) {
      const auto numel = static_cast<double>(tensor.rows * tensor.columns);
      send_along(cutting, numel * (1 - share), to_owners_);
      send_along(all, numel * share * static_cast<double>(ranks_ - 1), back_);
      held_ += numel * share;
      tensors_.push_back(std::move(tensor)), shares_.push_back(share);
    }
  }
  owners_ = owners_of(tensors_, ranks_);
  for (const std::vector<size_t>& round : rounds_of(tensors_, owners_, ranks_, options.round)) add_round(round);
}

void PlannedMatrices::send_along(const std::set<std::string>& axes, double elements, ByAxis& sent) const {
  double ranks = 1, nearer = 1;  // nearer: those that differ from a rank along axes inside of this one only, and itself
  for (const Axis& axis : axes_)
    if (axes.contains(axis.name)) ranks *= static_cast<double>(axis.size);
  for (const Axis& axis : axes_) {
    if (!axes.contains(axis.name) || axis.size == 1) continue;
    sent[axis.name] += elements * nearer * static_cast<double>(axis.size - 1) / (ranks - 1);
    nearer *= static_cast<double>(axis.size);
  }
}

void PlannedMatrices::add_round(const std::vector<size_t>& tensors) {
  const auto ranks = static_cast<double>(ranks_);
  std::vector<Round> own(static_cast<size_t>(ranks_));  // of each owner: what it gets, and what of results it sends
  Round all;
  double held = 0;
  for (const size_t i : tensors) {
    const auto numel = static_cast<double>(tensors_[i].rows * tensors_[i].columns);
    Round& of_owner = own[static_cast<size_t>(owners_[i])];
    of_owner.matrices += numel;
    of_owner.to_owners += numel * (1 - shares_[i]);
    of_owner.back += numel * shares_[i] * (ranks - 1);
    all.to_owners += numel * (1 - shares_[i]), held += numel * shares_[i];
  }
  Round most;
  for (const Round& one : own)
    if (one.matrices > most.matrices) most = one;
  most.to_owners += all.to_owners / ranks;  // what it sends to other owners
  most.back += held * (ranks - 1) / ranks;  // the results that it gets of others
  rounds_.push_back(most);
}

std::vector<WholeTensor> PlannedMatrices::of_busiest() const {
  std::vector<double> work(static_cast<size_t>(ranks_), 0);
  for (size_t i = 0; i < tensors_.size(); ++i) work[static_cast<size_t>(owners_[i])] += tensors_[i].work;
  const int64_t busiest = std::max_element(work.begin(), work.end()) - work.begin();
  std::vector<WholeTensor> list;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (owners_[i] == busiest) list.push_back(tensors_[i]);
  return list;
}

void PlannedMatrices::tell_traffic(PlanContext& ctx) const {
  for (const auto& [what, sent] :
       {std::pair{"parts of matrices, to owners", &to_owners_}, {"results of owners", &back_}})
    for (const Axis& axis : axes_)
      if (const auto at = sent->find(axis.name); at != sent->end() && at->second > 0)
        ctx.traffic(axis.name, what, bytes_of(at->second) / static_cast<double>(ranks_));
}

// The order of WholeTensors::run: the next round is gathered before this one is computed and sent back, and until then
// the last one's matrices and results are there.
double PlannedMatrices::most_bytes(double computing) const {
  double most = 0;
  for (size_t k = 0; k < rounds_.size(); ++k) {
    const double next = k + 1 < rounds_.size() ? rounds_[k + 1].to_owners : 0;
    const double before = k > 0 ? rounds_[k - 1].matrices + rounds_[k - 1].back : 0;
    const double beside = std::max(computing, bytes_of(rounds_[k].back));
    most = std::max(most, bytes_of(rounds_[k].matrices + next + before) + beside);
  }
  return most;
}

}  // namespace drivetrain
