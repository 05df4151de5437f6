#include <drivetrain/toolkit/sharding/whole_tensors.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/schedule.h>
#include <drivetrain/toolkit/sharding/planned_matrices.h>

namespace drivetrain {
namespace {

// The mesh axes over which the parts of a parameter lie.
std::vector<std::string> axes_of_cuts(const Layout& layout) {
  std::vector<std::string> axes = layout.flat_axes;
  for (const DimSplit& dim : layout.dims) axes.insert(axes.end(), dim.axes.begin(), dim.axes.end());
  return axes;
}

std::vector<std::string> axes_of_stage(const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const Axis& axis : mesh.axes())
    if (axis.name != Schedule::kAxis) axes.push_back(axis.name);
  return axes;
}

int64_t coordinate(const Mesh& mesh, int64_t rank, const std::string& axis) {
  for (const Axis& a : mesh.axes()) {
    if (a.name == axis) return rank % a.size;
    rank /= a.size;
  }
  return 0;
}

// What of a box lies in rows [first, first + count), with rows counted from `first`.
SliceBox within_rows(SliceBox box, int64_t first, int64_t count, int64_t held_columns) {
  const int64_t from = std::max(box.row, first), to = std::min(box.row + box.rows, first + count);
  box.held += std::max<int64_t>(from - box.row, 0) * held_columns;
  box.row = from - first, box.rows = std::max<int64_t>(to - from, 0);
  return box;
}

// Elements of one row of the parameter.
int64_t row_elements(const WholeTensor& t) { return t.count == 0 ? 0 : t.rows * t.columns / t.count; }

}  // namespace

at::Tensor WholeTensors::Part::in(const at::Tensor& held) const {
  return held.as_strided({box.rows, box.columns}, {held_columns, 1}, held.storage_offset() + box.held);
}

// What travels in one round.
struct WholeTensors::Round {
  const std::vector<size_t>* tensors = nullptr;
  std::map<size_t, at::Tensor> matrices;  // whole ones, and then their results, of which this rank is the owner
  std::vector<int64_t> sent, received;    // elements to and from each rank, on the way to the owners
  at::Tensor out, in;
  WorkPtr work;
};

WholeTensors::WholeTensors(const Trainables& all, const Cut& cut, const Mesh& mesh, const Options& options)
    : mesh_(mesh), options_(options), stage_(mesh.group(axes_of_stage(mesh))) {
  list_parts(all, cut);
  exchange_places();
  owners_ = owners_of(tensors_, stage_->size());
  check_whole();
  rounds_ = rounds_of(tensors_, owners_, stage_->size(), options.round);
}

void WholeTensors::list_parts(const Trainables& all, const Cut& cut) {
  // By name: the order of the trainables is another one on every rank.
  std::map<std::string, std::vector<size_t>> held;
  for (size_t i = 0; i < all.size(); ++i) held[all[i].param->name].push_back(i);
  for (const auto& [name, trainables] : held) {
    const Trainable& any = all[trainables.front()];
    for (WholeTensor& tensor : cut(any.param)) {
      const size_t index = tensors_.size();
      for (const size_t i : trainables) {
        const SliceMap map = slice_map(all[i].layout, mesh_);
        if (all[i].value.numel() != map.held)
          throw fail(ErrorCode::internal, name, ": a part of ", all[i].value.numel(), " elements, its layout names ",
                     map.held);
        for (const SliceBox& box : map.boxes) {
          const SliceBox part = within_rows(box, tensor.first, tensor.count, map.local_columns);
          if (part.rows > 0) parts_.push_back({index, i, part, map.local_columns});
        }
      }
      cut_axes_.push_back(axes_of_cuts(any.layout));
      tensors_.push_back(std::move(tensor));
    }
  }
}

// Every rank learns which elements the others hold: five numbers for each part.
void WholeTensors::exchange_places() {
  constexpr int64_t kNumbers = 5;
  const int64_t ranks = stage_->size();
  places_.assign(ranks, std::vector<std::vector<Place>>(tensors_.size()));
  for (size_t i = 0; i < parts_.size(); ++i)
    places_[stage_->rank()][parts_[i].tensor].push_back({parts_[i].tensor, parts_[i].box, i});
  if (ranks == 1) return;
  const auto gathered = [&](const at::Tensor& mine) {
    const at::Tensor sent = mine.to(options_.device);
    const at::Tensor all = at::empty({ranks * mine.numel()}, sent.options());
    stage_->all_gather(all, sent)->wait();
    return all.to(at::kCPU);
  };
  const at::Tensor count = at::zeros({2}, at::kLong);
  count.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(parts_.size());
  count.mutable_data_ptr<int64_t>()[1] = static_cast<int64_t>(tensors_.size());
  const at::Tensor counts = gathered(count);
  const int64_t* n = counts.const_data_ptr<int64_t>();
  int64_t most = 1;
  for (int64_t r = 0; r < ranks; ++r) {
    most = std::max(most, n[2 * r]);
    if (n[2 * r + 1] != static_cast<int64_t>(tensors_.size()))
      throw fail(ErrorCode::internal, "rank ", stage_->ranks()[r], " has ", n[2 * r + 1],
                 " matrices of this pipeline stage, rank ", mesh_.rank(), " has ", tensors_.size());
  }
  const at::Tensor mine = at::zeros({most * kNumbers}, at::kLong);
  int64_t* to = mine.mutable_data_ptr<int64_t>();
  for (const Part& p : parts_)
    for (const int64_t number : {static_cast<int64_t>(p.tensor), p.box.row, p.box.column, p.box.rows, p.box.columns})
      *to++ = number;
  const at::Tensor all = gathered(mine);
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == stage_->rank()) continue;
    const int64_t* from = all.const_data_ptr<int64_t>() + r * most * kNumbers;
    for (int64_t i = 0; i < n[2 * r]; ++i, from += kNumbers) {
      const auto tensor = static_cast<size_t>(from[0]);
      places_[r].at(tensor).push_back({tensor, {from[1], from[2], from[3], from[4], 0}, 0});
    }
  }
}

// Where several ranks hold an element, that one sends it which stands where the owner does along all axes that do not
// cut the parameter: the owner itself if it has everything.
bool WholeTensors::sends(int64_t rank, size_t tensor) const {
  const std::vector<int64_t>& ranks = stage_->ranks();
  const std::vector<std::string>& cut = cut_axes_[tensor];
  for (const Axis& axis : mesh_.axes())
    if (std::find(cut.begin(), cut.end(), axis.name) == cut.end() &&
        coordinate(mesh_, ranks[rank], axis.name) != coordinate(mesh_, ranks[owners_[tensor]], axis.name))
      return false;
  return true;
}

void WholeTensors::check_whole() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const WholeTensor& t = tensors_[i];
    int64_t held = 0;
    for (int64_t r = 0; r < stage_->size(); ++r)
      if (sends(r, i))
        for (const Place& place : places_[r][i]) held += place.box.rows * place.box.columns;
    if (held != t.rows * t.columns)
      throw fail(ErrorCode::internal, t.param->name, ": the ranks hold ", held, " elements of rows ", t.first, " to ",
                 t.first + t.count, " together, which have ", t.rows * t.columns);
  }
}

at::Tensor WholeTensors::flat(int64_t numel) const {
  return at::empty({numel}, at::TensorOptions().dtype(options_.dtype).device(options_.device));
}

at::Tensor WholeTensors::in_matrix(const Place& place, const at::Tensor& matrix) const {
  const SliceBox& box = place.box;
  const int64_t columns = row_elements(tensors_[place.tensor]);
  return matrix.as_strided({box.rows, box.columns}, {columns, 1},
                           matrix.storage_offset() + box.row * columns + box.column);
}

namespace {

// Counts elements per rank, or hands out the views of a buffer in which the ranks' slices follow each other.
class Slices {
 public:
  explicit Slices(const at::Tensor& buffer) : buffer_(buffer) {}
  at::Tensor next(const SliceBox& box) {
    const at::Tensor view = buffer_.narrow(0, at_, box.rows * box.columns).view({box.rows, box.columns});
    at_ += box.rows * box.columns;
    return view;
  }

 private:
  const at::Tensor buffer_;
  int64_t at_ = 0;
};

int64_t sum(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

}  // namespace

// In all buffers: by rank, then by tensor, then in the order in which the holder lists its parts.
void WholeTensors::begin_gather(Round& round, const Fill& fill) const {
  const int64_t me = stage_->rank(), ranks = stage_->size();
  if (ranks == 1) return;
  round.sent.assign(ranks, 0), round.received.assign(ranks, 0);
  for (const size_t i : *round.tensors) {
    const int64_t owner = owners_[i];
    for (int64_t r = 0; r < ranks; ++r)
      for (const Place& place : places_[r][i]) {
        const int64_t n = place.box.rows * place.box.columns;
        if (r == owner || !sends(r, i)) continue;
        if (r == me) round.sent[owner] += n;
        if (owner == me) round.received[r] += n;
      }
  }
  round.out = flat(sum(round.sent)), round.in = flat(sum(round.received));
  Slices slices(round.out);
  for (int64_t owner = 0; owner < ranks; ++owner)
    for (const size_t i : *round.tensors)
      if (owners_[i] == owner && owner != me && sends(me, i))
        for (const Place& place : places_[me][i]) fill(parts_[place.own], slices.next(place.box));
  round.work = stage_->all_to_all(round.in, round.out, round.received, round.sent);
}

void WholeTensors::end_gather(Round& round, const Fill& fill) const {
  const int64_t me = stage_->rank();
  for (const size_t i : *round.tensors)
    if (owners_[i] == me) {
      const at::Tensor matrix = flat(tensors_[i].rows * tensors_[i].columns);
      for (const Place& place : places_[me][i]) fill(parts_[place.own], in_matrix(place, matrix));
      round.matrices[i] = matrix.view({tensors_[i].rows, tensors_[i].columns});
    }
  if (!round.work) return;
  round.work->wait();
  Slices slices(round.in);
  for (int64_t r = 0; r < stage_->size(); ++r)
    for (const auto& [i, matrix] : round.matrices)
      if (r != me && sends(r, i))
        for (const Place& place : places_[r][i]) in_matrix(place, matrix).copy_(slices.next(place.box));
  round.in.reset(), round.out.reset(), round.work = nullptr;
}

// A matrix for each thread needs no waiting for one another and stays in the caches of its core. Where there are fewer
// matrices than threads, those may share what they do for one.
void WholeTensors::compute_all(Round& round, const Compute& compute) const {
  std::vector<std::pair<const size_t, at::Tensor>*> list;
  for (auto& one : round.matrices) list.push_back(&one);
  std::stable_sort(list.begin(), list.end(),
                   [&](const auto* a, const auto* b) { return tensors_[a->first].work > tensors_[b->first].work; });
  std::atomic<size_t> next = 0;
  const auto take_some = [&] {
    for (size_t at = next++; at < list.size(); at = next++) {
      auto& [i, matrix] = *list[at];
      matrix = compute(tensors_[i], matrix).contiguous();
      if (matrix.numel() != tensors_[i].rows * tensors_[i].columns)
        throw fail(ErrorCode::internal, tensors_[i].param->name, ": a result of ", matrix.numel(),
                   " elements for a matrix of ", tensors_[i].rows * tensors_[i].columns);
    }
  };
  const int64_t threads = at::get_num_threads();
  if (!options_.side_by_side || std::ssize(list) < threads) return take_some();
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) { take_some(); });
}

void WholeTensors::begin_spread(Round& round, const Compute& compute) const {
  const int64_t me = stage_->rank(), ranks = stage_->size();
  compute_all(round, compute);
  if (ranks == 1) return;
  std::vector<int64_t> sent(ranks, 0), received(ranks, 0);
  for (const size_t i : *round.tensors)
    for (int64_t r = 0; r < ranks; ++r)
      for (const Place& place : places_[r][i]) {
        const int64_t n = place.box.rows * place.box.columns;
        if (owners_[i] == me && r != me) sent[r] += n;
        if (owners_[i] != me && r == me) received[owners_[i]] += n;
      }
  round.out = flat(sum(sent)), round.in = flat(sum(received));
  Slices slices(round.out);
  for (int64_t r = 0; r < ranks; ++r)
    for (const auto& [i, matrix] : round.matrices)
      if (r != me)
        for (const Place& place : places_[r][i]) slices.next(place.box).copy_(in_matrix(place, matrix));
  round.work = stage_->all_to_all(round.in, round.out, received, sent);
}

void WholeTensors::end_spread(Round& round, const Take& take) const {
  const int64_t me = stage_->rank();
  for (const auto& [i, matrix] : round.matrices)
    for (const Place& place : places_[me][i]) take(parts_[place.own], in_matrix(place, matrix));
  if (!round.work) return;
  round.work->wait();
  Slices slices(round.in);
  for (int64_t owner = 0; owner < stage_->size(); ++owner)
    for (const size_t i : *round.tensors)
      if (owners_[i] == owner && owner != me)
        for (const Place& place : places_[me][i]) take(parts_[place.own], slices.next(place.box));
  round.work = nullptr;
}

void WholeTensors::run(const Fill& fill, const Compute& compute, const Take& take) const {
  std::vector<Round> rounds(rounds_.size());
  for (size_t k = 0; k < rounds.size(); ++k) rounds[k].tensors = &rounds_[k];
  if (!rounds.empty()) begin_gather(rounds[0], fill);
  for (size_t k = 0; k < rounds.size(); ++k) {
    end_gather(rounds[k], fill);
    if (k + 1 < rounds.size()) begin_gather(rounds[k + 1], fill);
    begin_spread(rounds[k], compute);
    if (k > 0) end_spread(rounds[k - 1], take), rounds[k - 1] = {};
  }
  if (!rounds.empty()) end_spread(rounds.back(), take);
}

}  // namespace drivetrain
