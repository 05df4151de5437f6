#include "step/stage_links.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

constexpr int64_t kMostDims = 6, kMostTensors = 8, kHeader = 1 + kMostTensors * (2 + kMostDims);

// Count; then type, dimensions and sizes of each.
at::Tensor shapes_as_numbers(const Tensors& tensors) {
  at::Tensor header = at::zeros({kHeader}, at::TensorOptions(at::kLong));
  if (tensors.size() > static_cast<size_t>(kMostTensors))
    throw fail(ErrorCode::plugin, "a unit at the end of a stage returns ", tensors.size(), " tensors; ", kMostTensors,
               " at most go on");
  int64_t* at = header.mutable_data_ptr<int64_t>();
  *at++ = static_cast<int64_t>(tensors.size());
  for (const at::Tensor& t : tensors) {
    if (t.dim() > kMostDims)
      throw fail(ErrorCode::plugin, "a tensor of ", t.dim(), " dimensions between stages; ", kMostDims,
                 " at most go on");
    at[0] = static_cast<int64_t>(t.scalar_type()), at[1] = t.dim();
    std::copy(t.sizes().begin(), t.sizes().end(), at + 2);
    at += 2 + kMostDims;
  }
  return header;
}

Tensors shapes_from_numbers(const at::Tensor& header) {
  const int64_t* at = header.const_data_ptr<int64_t>();
  Tensors shapes;
  const int64_t count = *at++;
  for (int64_t i = 0; i < count; ++i, at += 2 + kMostDims)
    shapes.push_back(at::empty(at::IntArrayRef(at + 2, at[1]),
                               at::TensorOptions(static_cast<at::ScalarType>(at[0])).device(at::kMeta)));
  return shapes;
}

bool same_shapes(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const at::Tensor& x, const at::Tensor& y) {
    return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type();
  });
}

}  // namespace

StageLinks::StageLinks(const Mesh& mesh, const Schedule& schedule, int64_t micro_batches, const at::Device& device,
                       const std::string& purpose)
    : mesh_(mesh), graph_(schedule), device_(device), stage_(mesh.index(Schedule::kAxis)) {
  connect(purpose);
  for (auto& [stage, from] : incoming_)
    for (const Pass pass : {Pass::train, Pass::forward_only})
      from.passes[static_cast<int>(pass)] =
          expected_messages(graph_, stage_, stage, schedule.program(stage, micro_batches, pass));
}

// Every rank walks the same list, so that groups are made in the same order everywhere.
void StageLinks::connect(const std::string& purpose) {
  std::set<std::pair<int64_t, int64_t>> links;
  for (int64_t i = 0; i + 1 < graph_.pieces(); ++i) {
    const int64_t a = graph_.place(i).stage, b = graph_.place(i + 1).stage;
    if (a != b) links.insert({{a, b}, {b, a}});
  }
  for (const auto& [from, to] : links) {
    if (from != stage_ && to != stage_) continue;
    const GroupPtr group = mesh_.subgroup(Schedule::kAxis, {from, to},
                                          concat("stage ", from, " to ", to, purpose.empty() ? "" : " for ", purpose));
    if (from == stage_)
      outgoing_[to].group = group;
    else
      incoming_[from].group = group;
  }
}

// The first time a program runs, kernels are loaded when they are first launched, which may have to wait until the
// device is idle; a receive that nobody needs yet would keep it from that for as long as the peer waits for this stage.
void StageLinks::begin(Pass pass) {
  ahead_ = std::exchange(ran_[static_cast<int>(pass)], true) ? kReceivesAhead : 0;
  for (auto& [stage, to] : outgoing_) to.received = 0;
  for (auto& [stage, from] : incoming_) {
    from.expected = &from.passes[static_cast<int>(pass)];
    from.posted = 0;
    from.waiting.clear();
    post_ahead(from, 0);
  }
}

void StageLinks::send(Direction direction, int64_t micro, int64_t chunk, const Tensors& tensors) {
  const std::optional<Place> to = graph_.receiver({stage_, chunk}, direction);
  if (!to)
    throw fail(ErrorCode::internal, "the schedule sends beyond the end of the chain, chunk ", chunk, " of stage ",
               stage_);
  if (to->stage == stage_) {
    local_[{direction, micro, to->chunk}] = tensors;
    return;
  }
  Outgoing& out = outgoing_.at(to->stage);
  Sent sent;
  for (const at::Tensor& t : tensors) sent.tensors.push_back(t.contiguous());
  announce(out, {direction, chunk}, sent.tensors, sent);
  for (const at::Tensor& t : sent.tensors) sent.works.push_back(out.group->send(t, 1 - out.group->rank()));
  out.sent.push_back(std::move(sent));
}

// The peer has received so many messages of this program: their works are done, or have nothing left to wait for.
void StageLinks::release_sent(Outgoing& to, size_t received) {
  for (; to.received < received && !to.sent.empty(); ++to.received) {
    for (const WorkPtr& work : to.sent.front().works) work->wait();
    to.sent.pop_front();
  }
}

void StageLinks::announce(Outgoing& to, const Edge& edge, const Tensors& tensors, Sent& sent) {
  if (const auto told = told_.find(edge); told != told_.end()) {
    if (same_shapes(told->second, tensors)) return;
    throw fail(ErrorCode::plugin, "what stage ", stage_,
               " hands on has changed its shape within a run; a unit must return the same shapes in every step");
  }
  const at::Tensor header = shapes_as_numbers(tensors);
  told_[edge] = shapes_from_numbers(header);
  const at::Tensor here = header.to(device_);
  sent.works.push_back(to.group->send(here, 1 - to.group->rank()));
  sent.header = here;
}

Tensors StageLinks::announced(Incoming& from) {
  const at::Tensor header = at::empty({kHeader}, at::TensorOptions(at::kLong).device(device_));
  from.group->recv(header, 1 - from.group->rank())->wait();
  return shapes_from_numbers(header.to(at::kCPU));
}

void StageLinks::post(Incoming& from, const Key& key) {
  const Edge edge = {key.direction, key.chunk};
  if (!known_.count(edge)) known_[edge] = announced(from);
  Posted posted;
  for (const at::Tensor& shape : known_.at(edge)) {
    posted.tensors.push_back(at::empty(shape.sizes(), shape.options().device(device_)));
    posted.works.push_back(from.group->recv(posted.tensors.back(), 1 - from.group->rank()));
  }
  from.waiting[key] = std::move(posted);
  ++from.posted;
}

// Up to index `until`, and further those whose shapes are known: asking for shapes waits for the peer.
void StageLinks::post_ahead(Incoming& from, size_t until) {
  while (from.posted < std::min(until, from.expected->order.size())) post(from, from.expected->order[from.posted]);
  while (from.posted < std::min(until + ahead_, from.expected->order.size())) {
    const Key& key = from.expected->order[from.posted];
    if (!known_.count({key.direction, key.chunk})) return;
    post(from, key);
  }
}

Tensors StageLinks::receive(Direction direction, int64_t micro, int64_t chunk) {
  const std::optional<Place> source = graph_.sender({stage_, chunk}, direction);
  const Key key = {direction, micro, chunk};
  if (source && source->stage == stage_) {
    const auto found = local_.find(key);
    if (found == local_.end())
      throw fail(ErrorCode::internal, "stage ", stage_, " reads what its own chunk has not made yet");
    Tensors tensors = std::move(found->second);
    local_.erase(found);
    return tensors;
  }
  const auto peer = source ? incoming_.find(source->stage) : incoming_.end();
  const bool known = peer != incoming_.end() && peer->second.expected->index.count(key) > 0;
  if (!known)
    throw fail(ErrorCode::internal, "the schedule receives micro-batch ", micro, " for chunk ", chunk, " of stage ",
               stage_, ", which no stage sends");
  Incoming& from = peer->second;
  const size_t place = from.expected->index.at(key);
  post_ahead(from, place + 1);
  Posted posted = std::move(from.waiting.at(key));
  from.waiting.erase(key);
  for (const WorkPtr& work : posted.works) work->wait();
  release_sent(outgoing_.at(source->stage), from.expected->confirmed[place]);
  return std::move(posted.tensors);
}

int64_t StageLinks::held() const {
  size_t count = local_.size();
  for (const auto& [stage, from] : incoming_) count += from.waiting.size();
  for (const auto& [stage, to] : outgoing_) count += to.sent.size();
  return static_cast<int64_t>(count);
}

void StageLinks::wait_for_peers() {
  for (auto& [stage, to] : outgoing_) release_sent(to, to.received + to.sent.size());
}

}  // namespace drivetrain
