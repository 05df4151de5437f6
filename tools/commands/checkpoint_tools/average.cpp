#include "checkpoint_tools/average.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "checkpoint_tools/elements.h"
#include "checkpoint_tools/new_place.h"
#include "checkpoint_tools/tool_text.h"
#include "formats/frozen_base.h"
#include "train/strategy_state.h"

namespace drivetrain {
namespace {

constexpr const char* kModel = "model/";
constexpr uint64_t kMostParts = 256;  // each is a file to open later

struct Stopped {};

struct Source {
  StoredTag tag;
  std::shared_ptr<const Checkpoint> checkpoint;
};

bool is_weight(const StoredTensor& tensor) { return tensor.name.starts_with(kModel); }

std::vector<StoredTensor> weights_of(const Checkpoint& checkpoint) {
  std::vector<StoredTensor> weights = checkpoint.tensors();
  std::erase_if(weights, [](const StoredTensor& tensor) { return !is_weight(tensor); });
  return weights;
}

// The oldest first, whatever the order of the names.
std::vector<Source> open_sources(const StoredRun& run, const std::vector<std::string>& names) {
  std::vector<Source> sources;
  std::set<std::string> known;
  for (const std::string& name : names) {
    const StoredTag& tag = run.find(name);
    if (!known.insert(tag.tag).second)
      throw fail(ErrorCode::config, "the checkpoint ", tag.tag, " is named twice; each counts once");
    sources.push_back({tag, run.open(tag)});
  }
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) {
    return std::tie(a.tag.step, a.tag.saved_at, a.tag.tag) < std::tie(b.tag.step, b.tag.saved_at, b.tag.tag);
  });
  return sources;
}

std::string form(const StoredTensor* tensor) {
  return tensor ? concat(dtype_name(tensor->dtype), " ", shape_text(tensor->shape)) : "none";
}

// Shapes and names are the same in all; dtypes may differ.
void check_same_weights(const std::vector<Source>& sources, const std::vector<StoredTensor>& weights) {
  const std::string& newest = sources.back().tag.tag;
  const auto refuse = [&](const Source& source, const std::string& name, const StoredTensor* a, const StoredTensor* b) {
    throw fail(ErrorCode::checkpoint, "the checkpoints ", source.tag.tag, " and ", newest,
               " do not hold the same model: ", name, " is ", form(a), " in the one and ", form(b),
               " in the other\n   average checkpoints of one model only: drivetrain checkpoint diff shows all "
               "differences");
  };
  const FrozenBase base = frozen_base_of(*sources.back().checkpoint);
  for (const Source& source : sources)
    if (const FrozenBase its = frozen_base_of(*source.checkpoint); its.digest != base.digest)
      throw fail(ErrorCode::checkpoint, "the checkpoints ", source.tag.tag, " and ", newest,
                 " do not hold the same model: their frozen weights are those of \"", its.folder, "\" and \"",
                 base.folder, "\"\n   average checkpoints of one model only");
  if (weights.empty())
    throw fail(ErrorCode::checkpoint, "the checkpoint ", newest, " holds no weights: no tensor begins with ", kModel);
  for (const Source& source : sources) {
    const std::vector<StoredTensor> others = weights_of(*source.checkpoint);
    for (size_t i = 0; i < std::max(others.size(), weights.size()); ++i) {
      const StoredTensor *a = i < others.size() ? &others[i] : nullptr, *b = i < weights.size() ? &weights[i] : nullptr;
      if (a && b && a->name != b->name) (a->name < b->name ? b : a) = nullptr;
      if (!a || !b || a->shape != b->shape) refuse(source, (a ? a : b)->name, a, b);
    }
  }
}

// Slices of the result without data: one list per part that is written at once.
std::vector<std::vector<StateSlice>> cut_into_parts(const std::vector<StoredTensor>& weights, uint64_t part_bytes) {
  uint64_t bytes = 0;
  for (const StoredTensor& tensor : weights) bytes += bytes_of(tensor);
  const uint64_t most = std::max(part_bytes, bytes / kMostParts);
  std::vector<std::vector<StateSlice>> parts(1);
  uint64_t filled = 0;
  for (const StoredTensor& tensor : weights) {
    const uint64_t width = c10::elementSize(tensor.dtype);
    const StateBox whole = box_of_shape(tensor.shape);
    std::vector<StateBox> boxes = cut_box(whole, static_cast<int64_t>(most / width));
    if (boxes.empty()) boxes.push_back(whole);
    for (const StateBox& box : boxes) {
      const uint64_t size = static_cast<uint64_t>(box.rows * box.columns) * width;
      if (filled > 0 && filled + size > most) parts.emplace_back(), filled = 0;
      parts.back().push_back({tensor.name, tensor.shape, box, {}});
      filled += size;
    }
  }
  return parts;
}

class Averaging {
 public:
  Averaging(const std::vector<Source>& sources, const std::vector<StoredTensor>& weights, const std::atomic<int>& stop)
      : sources_(sources), stop_(stop) {
    for (const StoredTensor& tensor : weights) dtypes_[tensor.name] = tensor.dtype;
  }

  void fill(StateSlice& slice) {
    const at::ScalarType dtype = dtypes_.at(slice.name);
    slice.data = at::empty({slice.box.rows, slice.box.columns}, at::TensorOptions(dtype));
    for (const StateBox& box : cut_box(slice.box, kElementsAtOnce)) {
      if (stop_.load() != 0) throw Stopped();
      const at::Tensor into =
          slice.data.narrow(0, box.row - slice.box.row, box.rows).narrow(1, box.column - slice.box.column, box.columns);
      if (at::isFloatingType(dtype))
        into.copy_(mean(slice.name, box));
      else
        sources_.back().checkpoint->read(slice.name, box, into);
    }
  }
  int64_t not_finite() const { return not_finite_; }

 private:
  at::Tensor mean(const std::string& name, const StateBox& box) {
    at::Tensor sum = at::zeros({box.rows, box.columns}, at::TensorOptions(at::kDouble));
    for (const Source& source : sources_) sum.add_(read_doubles(*source.checkpoint, name, box));
    sum.div_(static_cast<double>(sources_.size()));
    const double* const data = sum.const_data_ptr<double>();
    not_finite_ += std::count_if(data, data + sum.numel(), [](double x) { return !std::isfinite(x); });
    return sum;
  }

  const std::vector<Source>& sources_;
  const std::atomic<int>& stop_;
  std::map<std::string, at::ScalarType> dtypes_;
  int64_t not_finite_ = 0;
};

// What stands in the place of a run's facts: the newest's, without what a run goes on with.
Value facts_of(const StoredRun& run, const std::vector<Source>& sources, const Value& config) {
  Value facts = Value::object(), averaged = Value::object();
  Value::Array tags, steps;
  for (const Source& source : sources) tags.emplace_back(source.tag.tag), steps.emplace_back(source.tag.step);
  averaged.set("folder", std::filesystem::absolute(run.folder()).lexically_normal().string());
  averaged.set("tags", Value(std::move(tags))), averaged.set("steps", Value(std::move(steps)));
  if (!config.is_null()) facts.set("config", config);
  for (const char* const key : {"run", kFrozenBase})
    if (const Value* const known = sources.back().checkpoint->facts().find(key)) facts.set(key, *known);
  facts.set("figures", Value::object());
  facts.set(kAveraged, std::move(averaged));
  return facts;
}

}  // namespace

AverageOutcome average_checkpoints(const StoredRun& run, const Registry& registry, const AverageRequest& request,
                                   const std::atomic<int>& stop) {
  const std::vector<Source> sources = open_sources(run, request.tags);
  const Source& newest = sources.back();
  const std::vector<StoredTensor> weights = weights_of(*newest.checkpoint);
  check_same_weights(sources, weights);
  const Value* const config = newest.checkpoint->facts().find("config");
  NewPlace place(registry, run.store().name, request.output, config ? *config : Value());

  AverageOutcome outcome;
  outcome.tag = formatted("average-%08lld", static_cast<long long>(newest.tag.step));
  Averaging averaging(sources, weights, stop);
  auto parts = cut_into_parts(weights, request.part_bytes);
  try {
    for (size_t part = 0; part < parts.size(); ++part) {
      for (StateSlice& slice : parts[part]) averaging.fill(slice);
      place.write({outcome.tag, newest.tag.step, static_cast<int64_t>(part), static_cast<int64_t>(parts.size()),
                   std::move(parts[part])});
    }
    if (stop.load() != 0) throw Stopped();
    place.commit(facts_of(run, sources, place.config()));
  } catch (const Stopped&) {
    outcome.stopped = true;
    return outcome;
  }
  for (const Source& source : sources) outcome.from.push_back(source.tag.tag);
  for (const StoredTensor& tensor : weights) ++(at::isFloatingType(tensor.dtype) ? outcome.averaged : outcome.taken);
  outcome.left_out = newest.checkpoint->tensors().size() - weights.size();
  const std::set<std::string> strategies = strategies_with_state(*newest.checkpoint);
  outcome.strategies = {strategies.begin(), strategies.end()};
  outcome.not_finite = averaging.not_finite();
  return outcome;
}

std::string AverageOutcome::text(const std::string& output) const {
  std::string text = concat("averaged ", counted(averaged, "tensor"), " of ", join(from), " in float64\n");
  if (taken > 0) text += concat("taken from ", from.back(), ": ", counted(taken, "tensor"), " of whole numbers\n");
  text += concat("left out: counters and ", counted(left_out, "tensor"),
                 " that only a run that goes on needs, such as the optimizer's; a run refuses to go on from it\n");
  if (!strategies.empty())
    text += concat("among them the state of ", join(strategies), ": a model that computes by it, as by biases of ",
                   "routers, is another one without\n");
  if (not_finite > 0) text += concat("warning: ", not_finite, " elements are NaN or infinite\n");
  return concat(text, "saved as ", tag, " in ", one_line(output), "\n");
}

Value AverageOutcome::value(const std::string& output) const {
  Value value = Value::object();
  value.set("output", output), value.set("tag", tag), value.set("from", strings_value(from));
  value.set("averaged_tensors", count_value(averaged)), value.set("taken_tensors", count_value(taken));
  value.set("left_out_tensors", count_value(left_out)), value.set("left_out_strategies", strings_value(strategies));
  value.set("not_finite", not_finite);
  return value;
}

}  // namespace drivetrain
