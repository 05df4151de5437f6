#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <unordered_map>

#include <drivetrain/error.h>

#include "base/printable.h"
#include "state/absent_rows.h"
#include "state/foreign_tensors.h"
#include "state/hf_folder.h"
#include "state/initial_values.h"
#include "state/weight_slice.h"
#include "state/weights.h"

namespace drivetrain {
namespace {

constexpr size_t kShownProblems = 20;  // a wrong model has hundreds, all saying the same

// Gathers what does not fit between a folder and a model, then fills.
class WeightLoader {
 public:
  WeightLoader(const WeightSource& folder, const WeightRules& rules, const Mesh& mesh, uint64_t seed)
      : folder_(folder), rules_(rules), tensors_(foreign_tensors(rules)), mesh_(mesh), seed_(seed) {}

  void check_names() {
    std::set<std::string> known;
    for (const WeightRule& rule : rules_.rules) {
      Source& source = sources_[rule.param];
      source.rule = &rule;
      std::set<std::string> missing;  // once, however many parts it has
      for (const WeightPart& part : rule.parts) {
        source.names.push_back(name_in(folder_, rules_, part));
        known.insert(source.names.back());
        const std::string name = written_name(rules_, part);
        if (source.names.back().empty() && missing.insert(name).second)
          problem("tensor \"", shown(name), "\" is missing; it holds ", rule.param, " of the model");
      }
    }
    for (const auto& [name, param] : rules_.tied) {
      tied_names_.push_back(name_in(folder_, rules_, {name, 0}));
      known.insert(tied_names_.back());
    }
    for (const std::string& name : folder_.names()) {
      if (!known.count(name) && !is_ignored(rules_, name)) {
        problem("tensor \"", shown(name), "\" in ", folder_.file(name), " belongs to nothing in the model");
      }
    }
  }

  void check_target(const Trainable& target) {
    const Source& source = source_of(target);
    const std::vector<int64_t>& shape = target.layout.global_shape;
    int64_t rows = 0;
    for (const WeightPart& part : source.rule->parts) rows += part.rows;
    if (shape.empty() || rows != shape[0]) {
      throw fail(ErrorCode::internal, "the weight rule of ", target.param->name, " supplies ", rows, " rows for shape ",
                 at::IntArrayRef(shape));
    }
    std::set<std::string> checked{""};  // the name of what is missing
    const std::vector<WeightPart>& parts = source.rule->parts;
    for (size_t i = 0; i < parts.size(); ++i)
      if (checked.insert(source.names[i]).second)
        check_tensor(source.names[i], tensors_.at(written_name(rules_, parts[i])), target);
    for (size_t i = 0; i < rules_.tied.size(); ++i) {
      if (rules_.tied[i].second != target.param->name || tied_names_[i].empty()) continue;
      ForeignTensor tied = tensors_.at(written_name(rules_, parts.back()));
      tied.rows = rows, tied.transposed = false;
      if (check_tensor(tied_names_[i], tied, target)) check_tie(tied_names_[i], target);
    }
  }

  void throw_if_any() const {
    if (problems_.empty()) return;
    std::string text = concat(folder_.path(), ": does not fit the model:");
    for (size_t i = 0; i < std::min(problems_.size(), kShownProblems); ++i) text += "\n   " + problems_[i];
    if (problems_.size() > kShownProblems) text += concat("\n   and ", problems_.size() - kShownProblems, " more");
    throw fail(ErrorCode::config, text, "\n   compare the model's options with ", where_it_says());
  }

  // A router with a NaN chooses some expert, and first the gradients show it. Other parameters show one in the loss.
  void fill(const Trainable& target) const {
    const SliceReader reader = read(target, target.value);
    const Source& source = source_of(target);
    int64_t row = 0;
    for (size_t i = 0; i < source.names.size(); ++i) {
      const WeightPart& part = source.rule->parts[i];
      const int64_t there = rows_there(folder_, source.names[i], source.rule->transposed, part);
      if (reader.has_of(row + there, part.rows - there)) add(source, i, reader, target, row + there, part.rows - there);
      row += part.rows;
    }
    if (target.param->role != ParamRole::router || at::isfinite(target.value).all().item<bool>()) return;
    const std::string& name = source_of(target).names.front();
    throw fail(
        ErrorCode::config, folder_.path(), ": tensor \"", shown(name), "\" in ", folder_.file(name),
        ", a router's, holds numbers that are not finite, by which no expert can be chosen. Take another copy of ",
        "the file, or weights from before the run that wrote it went wrong");
  }

 private:
  struct Source {
    const WeightRule* rule = nullptr;
    std::vector<std::string> names;  // one per part; empty: missing
  };

  template <class... Parts>
  void problem(const Parts&... parts) {
    problems_.push_back(concat(parts...));
  }

  std::string where_it_says() const {
    const std::string config = folder_.path() + "/config.json";
    std::error_code unknown;
    return std::filesystem::exists(config, unknown) ? config : "those of the run that wrote it";
  }

  const Source& source_of(const Trainable& target) const {
    const auto found = sources_.find(target.param->name);
    if (found != sources_.end()) return found->second;
    throw fail(ErrorCode::internal, "no weight rule was given for ", target.param->name);
  }

  // Of a table with other rows than the folder says; else empty.
  static std::string padded_remedy(const Trainable& target, const std::vector<int64_t>& found) {
    const ParamRole role = target.param->role;
    const std::vector<int64_t>& ours = target.layout.global_shape;
    const bool is_table = role == ParamRole::embedding || role == ParamRole::output;
    if (!is_table || found.size() != 2 || ours.size() != 2 || found[1] != ours[1]) return "";
    return concat("; where a vocabulary was padded, vocab_size of the model (config.json or model.params) has to be ",
                  found[0], ", too");
  }

  bool check_tensor(const std::string& name, const ForeignTensor& wanted, const Trainable& target) {
    const std::vector<int64_t> found = folder_.shape(name), &ours = target.layout.global_shape;
    if (!wanted.fits(found, ours)) {
      problem("tensor \"", shown(name), "\" has shape ", at::IntArrayRef(found), "; ", target.param->name,
              " of the model needs ", at::IntArrayRef(wanted.shape(ours)), wanted.padded ? " or more rows" : "",
              wanted.absent == AbsentRows::refused ? "" : concat(" or less, of at least ", wanted.least, " rows,"),
              " there", padded_remedy(target, found));
      return false;
    }
    const at::ScalarType dtype = folder_.dtype(name);
    const bool usable = dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble;
    if (!usable)
      problem("tensor \"", shown(name), "\" is of type ", c10::toString(dtype), "; F32, BF16, F16 or F64 can be read");
    return usable;
  }

  // What is there.
  SliceReader read(const Trainable& target, const at::Tensor& value) const {
    const Source& source = source_of(target);
    SliceReader reader(target.layout, mesh_, value);
    int64_t row = 0;
    for (size_t i = 0; i < source.names.size(); ++i) {
      const WeightPart& part = source.rule->parts[i];
      const bool transposed = source.rule->transposed;
      const int64_t there = rows_there(folder_, source.names[i], transposed, part);
      reader.read(folder_, source.names[i], transposed, {row, part.first, there});
      row += part.rows;
    }
    return reader;
  }

  // Our rows [first, first + count), which are of part i and not in the file.
  void add(const Source& source, size_t i, const SliceReader& reader, const Trainable& target, int64_t first,
           int64_t count) const {
    if (source.rule->parts[i].absent == AbsentRows::mean)
      reader.repeat(mean_row(folder_, source.names[i], *source.rule, source.names), first, count);
    else
      fill_initial_rows(target, {first, count}, seed_, mesh_);
  }

  // Each rank compares what it holds. Bits, so that a NaN equals itself.
  void check_tie(const std::string& name, const Trainable& target) {
    if (!problems_.empty()) return;  // the parameter's own tensors may be missing or misshapen
    const auto options = at::TensorOptions().dtype(at::kFloat);
    const at::Tensor ours = at::zeros({target.value.numel()}, options), theirs = at::zeros_like(ours);
    read(target, ours);
    const int64_t rows = std::min(folder_.shape(name).at(0), target.layout.global_shape[0]);
    SliceReader(target.layout, mesh_, theirs).read(folder_, name, false, {0, 0, rows});
    if (std::memcmp(ours.const_data_ptr(), theirs.const_data_ptr(), ours.nbytes()) == 0) return;
    problem("tensor \"", shown(name), "\" differs from \"", source_of(target).names[0],
            "\", with which the model ties it; untie ",
            "them in the model's options (tie_word_embeddings false in config.json)");
  }

  const WeightSource& folder_;
  const WeightRules& rules_;
  const std::map<std::string, ForeignTensor> tensors_;  // by written name
  const Mesh& mesh_;
  const uint64_t seed_;
  std::unordered_map<std::string, Source> sources_;  // by our parameter
  std::vector<std::string> tied_names_;              // as rules_.tied; empty: not there
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> load_weights(const std::string& folder, const WeightRules& rules,
                                      const std::vector<Trainables>& targets, const Mesh& mesh, uint64_t seed) {
  return load_weights(HfFolder(folder), rules, targets, mesh, seed);
}

std::vector<std::string> load_weights(const WeightSource& source, const WeightRules& rules,
                                      const std::vector<Trainables>& targets, const Mesh& mesh, uint64_t seed) {
  WeightLoader loader(source, rules, mesh, seed);
  loader.check_names();
  for (const Trainables& chunk : targets) {
    for (const Trainable& target : chunk) loader.check_target(target);
  }
  loader.throw_if_any();
  for (const Trainables& chunk : targets) {
    for (const Trainable& target : chunk) loader.fill(target);
  }
  return source.warnings();
}

}  // namespace drivetrain
