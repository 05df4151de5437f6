// One rank under suite.h: drives plugins of that kind as the runtime does - plan twice, build and attach from the
// innermost - and attends with what they make of an attention. Ranks are threads with the local communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/communicator.h>
#include <drivetrain/context_parallel.h>
#include <drivetrain/mesh.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/value.h>

#include <drivetrain/testkit/attention/reference.h>
#include <drivetrain/testkit/kit/host.h>

namespace drivetrain::test {

struct ContextPart {
  std::string name;
  int64_t size = 1;
  Value options = Value::object();  // beside "size"
};

// Sequences [B, S] whose positions lie on the ranks of `parts`, outermost first.
struct ContextTrial {
  std::vector<ContextPart> parts;
  std::string attention = "standard";
  AttentionCase shape = {};  // T is S
  at::ScalarType dtype = at::kDouble;
  std::function<std::shared_ptr<Strategy>(const ContextPart&, const Services&)> make =
      nullptr;  // null: the installed plugin
  std::function<std::shared_ptr<Attention>(std::shared_ptr<Attention>)> around =
      nullptr;  // between plugins and attention

  int64_t ranks() const {
    int64_t product = 1;
    for (const ContextPart& part : parts) product *= part.size;
    return product;
  }
  std::string text() const {
    std::string names;
    for (const ContextPart& part : parts) names += concat(part.name, " ", part.size, ", ");
    return concat(names, attention, ", ", shape.what, ", ", c10::toString(dtype));
  }
};

class ContextRank {
 public:
  ContextRank(const ContextTrial& trial, int64_t rank, const std::shared_ptr<Store>& store);

  // Plans as a run does: once without lengths, once with them. All refusals, one a line.
  std::string plan(const ModelFacts& model, RunFacts run);
  std::string plan();
  ModelFacts facts() const;

  void build();
  void attach();

  std::vector<RowRange> positions(std::vector<RowRange> all, const std::vector<int64_t>& cu_seqlens = {}) const;
  // This rank's positions of whole tensors [B, S, heads, D].
  AttentionInputs slice(const AttentionInputs& whole) const;
  // Both halves on this rank's positions. A rank that cannot tells the others.
  AttentionResult attend_here(const AttentionInputs& whole, const AttentionArgs& args) const;

  const Attention& attention() const { return *attention_; }
  const std::shared_ptr<Attention>& shared_attention() const { return attention_; }
  const std::shared_ptr<Attention>& inner() const { return inner_; }
  bool wraps() const { return attention_ != inner_; }
  size_t cuts() const { return cuts_.size(); }
  void give_up(const std::string& reason) const;

 private:
  const ContextTrial& trial_;
  std::shared_ptr<Store> store_;
  LinesLog log_;
  Services services_;
  const InstalledMaker maker_{services_};
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Attention> inner_;
  std::unique_ptr<Mesh> mesh_;
  std::vector<std::shared_ptr<Strategy>> strategies_;
  std::vector<PlanRecord::Claim> claims_;
  std::vector<Builder::SequenceCut> cuts_;
  std::shared_ptr<Attention> attention_;
};

// Runs `body` on every rank of the trial, planned and built; what each threw, "" for nothing.
std::vector<std::string> run_context_ranks(const ContextTrial& trial,
                                           const std::function<void(ContextRank&, int64_t)>& body);

}  // namespace drivetrain::test
