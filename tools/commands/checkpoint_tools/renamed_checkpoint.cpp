#include "checkpoint_tools/renamed_checkpoint.h"

#include <algorithm>
#include <set>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "formats/state_names.h"
#include "state/foreign_tensors.h"

namespace drivetrain {
namespace {

constexpr size_t kShownProblems = 20;

// Rows [row, row + rows) of a tensor are rows of another one from (source_row, source_column) on or, transposed,
// columns.
struct Rows {
  std::string source;
  int64_t row = 0, rows = 0;
  bool transposed = false;
  int64_t source_row = 0, source_column = 0;
};

class Renamed final : public Checkpoint {
 public:
  explicit Renamed(std::shared_ptr<const Checkpoint> of) : of_(std::move(of)) {
    for (StoredTensor& t : of_->tensors()) {
      const std::string name = t.name;
      stored_.emplace(name, std::move(t));
    }
  }

  void set_facts(Value facts) { facts_ = std::move(facts); }
  const std::map<std::string, StoredTensor>& stored() const { return stored_; }

  // `shape`: of the new tensor. Its dtype is that of its first part.
  void add(const std::string& name, const std::vector<int64_t>& shape, std::vector<Rows> parts) {
    for (const Rows& part : parts)
      if (!stored_.count(part.source)) return problem(concat("\"", shown(part.source), "\" is missing"));
    const at::ScalarType dtype = stored_.at(parts.front().source).dtype;
    tensors_[name] = {{name, shape, dtype}, std::move(parts)};
  }
  // That the tensor below, for what `add` is going to say of it, can be one that holds rows of a parameter of ours.
  void expect(const std::string& source, const ForeignTensor& wanted, const std::vector<int64_t>& ours) {
    const auto found = stored_.find(source);
    if (found == stored_.end() || wanted.fits_whole(found->second.shape, ours)) return;
    problem(concat("\"", shown(source), "\" has shape ", at::IntArrayRef(found->second.shape), "; ",
                   at::IntArrayRef(wanted.shape(ours)), wanted.padded ? " or more rows are" : " is", " wanted"));
  }
  // Once, however many parts a tensor has.
  void problem(const std::string& text) {
    if (std::find(problems_.begin(), problems_.end(), text) == problems_.end()) problems_.push_back(text);
  }
  void throw_if_any(const std::string& head) const {
    if (problems_.empty()) return;
    std::string text = head;
    for (size_t i = 0; i < std::min(problems_.size(), kShownProblems); ++i) text += "\n   " + problems_[i];
    if (problems_.size() > kShownProblems) text += concat("\n   and ", problems_.size() - kShownProblems, " more");
    throw fail(ErrorCode::checkpoint, text);
  }

  const Value& facts() const override { return facts_; }
  std::vector<StoredTensor> tensors() const override {
    std::vector<StoredTensor> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(tensor.stored);
    return list;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw fail(ErrorCode::checkpoint, "the checkpoint has no tensor \"", name, "\"");
    for (const Rows& part : found->second.parts) {
      const int64_t first = std::max(part.row, box.row), last = std::min(part.row + part.rows, box.row + box.rows);
      if (first >= last) continue;
      const int64_t row = first - part.row, rows = last - first;
      const at::Tensor place = into.narrow(0, first - box.row, rows);
      if (part.transposed)
        of_->read(part.source, {part.source_row + box.column, part.source_column + row, box.columns, rows}, place.t());
      else
        of_->read(part.source, {part.source_row + row, part.source_column + box.column, rows, box.columns}, place);
    }
  }
  std::vector<std::string> verify() const override { return of_->verify(); }

 private:
  struct Tensor {
    StoredTensor stored;
    std::vector<Rows> parts;
  };
  const std::shared_ptr<const Checkpoint> of_;
  std::map<std::string, StoredTensor> stored_;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::string> problems_;
  Value facts_;
};

const std::vector<int64_t>& shape_of(const ParamShapes& shapes, const std::string& param) {
  const auto found = shapes.find(param);
  if (found == shapes.end()) throw fail(ErrorCode::internal, "the model has a weight rule for ", param, " and no such");
  return found->second;
}

// "optimizer/NAME.MOMENT" by NAME; `owners`: how many words stand before the name.
std::map<std::string, std::set<std::string>> moments_of(const std::map<std::string, StoredTensor>& stored, int owners) {
  std::map<std::string, std::set<std::string>> moments;
  for (const auto& [name, tensor] : stored) {
    if (!name.starts_with(kOptimizerNames)) continue;
    size_t begin = 0;
    for (int i = 0; i < owners && begin != std::string::npos; ++i)
      begin = name.find('/', begin) == std::string::npos ? std::string::npos : name.find('/', begin) + 1;
    const size_t dot = name.rfind('.');
    if (begin == std::string::npos || dot == std::string::npos || dot < begin) continue;
    moments[name.substr(begin, dot - begin)].insert(name.substr(dot + 1));
  }
  return moments;
}

// The foreign name of a part, with or without the rules' prefix.
std::string found_name(const std::map<std::string, StoredTensor>& stored, const WeightRules& rules,
                       const WeightPart& part) {
  const std::string full = written_name(rules, part);
  return !stored.count(kModelNames + full) && stored.count(kModelNames + part.name) ? part.name : full;
}

// Weights that no rule takes.
std::vector<std::string> left_over(const std::map<std::string, StoredTensor>& stored, const WeightRules& rules) {
  std::set<std::string> known;
  for (const WeightRule& rule : rules.rules)
    for (const WeightPart& part : rule.parts) known.insert(found_name(stored, rules, part));
  for (const auto& [name, param] : rules.tied) known.insert({rules.prefix + name, name});
  std::vector<std::string> left;
  for (const auto& [name, tensor] : stored)
    if (name.starts_with(kModelNames) && !known.count(name.substr(kModelNames.size())) &&
        !is_ignored(rules, name.substr(kModelNames.size())))
      left.push_back(name);
  return left;
}

// Rows [row, row + rows) of a parameter, which stand at `first` in a foreign tensor.
struct Content {
  std::string param;
  int64_t row = 0, rows = 0, first = 0;
};

// By written name, what a foreign tensor holds.
std::map<std::string, std::vector<Content>> contents_of(const WeightRules& rules) {
  std::map<std::string, std::vector<Content>> contents;
  for (const WeightRule& rule : rules.rules) {
    int64_t row = 0;
    for (const WeightPart& part : rule.parts) {
      contents[written_name(rules, part)].push_back({rule.param, row, part.rows, part.first});
      row += part.rows;
    }
  }
  return contents;
}

// That a tensor can be written: its parts are all of it. Several parts of a transposed one would be columns, which no
// model asks for.
void check_whole(const std::string& name, const ForeignTensor& tensor, std::vector<Content> parts) {
  std::sort(parts.begin(), parts.end(), [](const Content& a, const Content& b) { return a.first < b.first; });
  int64_t row = 0;
  for (const Content& part : parts) {
    if (part.first != row || (tensor.transposed && parts.size() > 1))
      throw fail(ErrorCode::internal, "the weight rules do not say how ", name, " is written, at its row ", row);
    row += part.rows;
  }
}

}  // namespace

std::shared_ptr<const Checkpoint> as_native(std::shared_ptr<const Checkpoint> foreign, const WeightRules& rules,
                                            const ParamShapes& shapes, const std::string& optimizer_id,
                                            const std::set<std::string>& only) {
  const auto made = std::make_shared<Renamed>(foreign);
  made->set_facts(foreign->facts());
  const auto moments = moments_of(made->stored(), 1);
  const auto tensors = foreign_tensors(rules);
  for (const WeightRule& rule : rules.rules) {
    if (!only.empty() && !only.count(rule.param)) continue;
    const std::vector<int64_t>& shape = shape_of(shapes, rule.param);
    std::vector<std::string> names;
    std::set<std::string> kept;
    for (const WeightPart& part : rule.parts) {
      names.push_back(found_name(made->stored(), rules, part));
      if (const auto found = moments.find(names.back()); found != moments.end())
        kept.insert(found->second.begin(), found->second.end());
    }
    const auto add = [&](const std::string& name, const std::string& before, const std::string& after) {
      std::vector<Rows> parts;
      int64_t row = 0;
      for (size_t i = 0; i < names.size(); ++i) {
        const WeightPart& part = rule.parts[i];
        made->expect(before + names[i] + after, tensors.at(written_name(rules, part)), shape);
        const int64_t across = rule.transposed ? part.first : 0;
        parts.push_back({before + names[i] + after, row, part.rows, rule.transposed, part.first - across, across});
        row += part.rows;
      }
      made->add(name, shape, std::move(parts));
    };
    add(kModelNames + rule.param, kModelNames, "");
    for (const std::string& moment : kept)
      add(concat(optimizer_id, "/", rule.param, ".", moment), kOptimizerNames, "." + moment);
  }
  for (const std::string& name : left_over(made->stored(), rules))
    made->problem(concat("\"", shown(name), "\" belongs to nothing in the model"));
  made->throw_if_any("the checkpoint does not fit the model:");
  return made;
}

std::shared_ptr<const Checkpoint> as_foreign(std::shared_ptr<const Checkpoint> native, const WeightRules& rules,
                                             const ParamShapes& shapes, Value facts) {
  const auto made = std::make_shared<Renamed>(native);
  made->set_facts(std::move(facts));
  const auto moments = moments_of(made->stored(), 2);
  std::string owner;  // "optimizer/adamw/"
  for (const auto& [name, tensor] : made->stored())
    if (name.starts_with(kOptimizerNames)) owner = name.substr(0, name.find('/', kOptimizerNames.size()) + 1);
  const auto contents = contents_of(rules);
  for (const auto& [name, tensor] : foreign_tensors(rules)) {
    const std::vector<Content>& parts = contents.at(name);
    check_whole(name, tensor, parts);
    const std::vector<int64_t> theirs = tensor.shape(shape_of(shapes, parts.front().param));
    std::set<std::string> kept;
    const auto add = [&](const std::string& to, const std::string& before, const std::string& after) {
      std::vector<Rows> rows;
      for (const Content& part : parts) {
        const std::vector<int64_t>& ours = shape_of(shapes, part.param);
        made->expect(before + part.param + after, {ours.empty() ? 1 : ours[0]}, ours);
        rows.push_back({before + part.param + after, part.first, tensor.transposed ? theirs[0] : part.rows,
                        tensor.transposed, part.row, 0});
      }
      made->add(to, theirs, std::move(rows));
    };
    add(kModelNames + name, kModelNames, "");
    for (const Content& part : parts)
      if (const auto found = moments.find(part.param); found != moments.end())
        kept.insert(found->second.begin(), found->second.end());
    for (const std::string& moment : kept) add(concat(kOptimizerNames, name, ".", moment), owner, "." + moment);
  }
  made->throw_if_any("the checkpoint does not fit the model:");
  return made;
}

}  // namespace drivetrain
