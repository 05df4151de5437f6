// A PlanContext that records what plugins declare in one round of `plan`. The runtime solves the mesh from it; tests of
// plugins read it. Plugins do not include this header. Thread: main.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <drivetrain/plan_context.h>

DRIVETRAIN_CONTRACT(plan_record)

namespace drivetrain {

class DRIVETRAIN_API PlanRecord final : public PlanContext {
 public:
  struct Claim {
    std::string axis;
    int64_t size;  // kRest: all ranks that no other claim takes
    Reads reads;
    int place;
    std::string by;
    bool joins_gradients() const { return reads != Reads::same; }
    bool operator==(const Claim&) const = default;
  };
  struct Need {
    std::string ability, why, by;
    std::string taken_by = {}, taken_why = {};  // the plugin outside of this one that took it away; empty: none
  };
  struct Note {
    std::string by, text;
    bool operator==(const Note&) const = default;
  };
  struct Memory {
    std::string by, what;
    double bytes;
    MemoryClass memory_class;
    bool on_host = false;  // beside a device with memory of its own
  };
  struct Traffic {
    std::string by, axis, what;
    double bytes;
  };
  struct Copies {
    std::string by;
    HostTraffic traffic;
  };
  struct Share {
    std::string by;
    bool layers;  // split_layers; false: split_attention_heads
    int64_t ranks;
  };

  PlanRecord(ModelFacts model, RunFacts run);
  // Sets the id ("attention/standard") of the plugin that makes the next calls. Plugins come outermost first.
  void set_plugin(const std::string& plugin);

  const ModelFacts& model() const override { return model_; }
  const RunFacts& run() const override { return run_; }
  void claim_axis(const std::string& axis, int64_t size, Reads reads, int place) override;
  void split_layers(int64_t ranks) override { shares_.push_back({speaker_, true, ranks}); }
  void split_attention_heads(int64_t ranks) override { shares_.push_back({speaker_, false, ranks}); }
  void offer(const std::string& ability) override { offers_.push_back({speaker_, ability}); }
  void need(const std::string& ability, const std::string& why) override;
  void take_away(const std::string& ability, const std::string& why) override;
  void refuse(const std::string& problem) override { refusals_.push_back({speaker_, problem}); }
  void cost(const std::string& line) override { costs_.push_back({speaker_, line}); }
  void capturable() override { capturables_.push_back(speaker_); }
  void no_effect(const std::string& key, const std::string& why) override;
  void memory(MemoryClass memory_class, const std::string& what, double bytes) override;
  void host_memory(MemoryClass memory_class, const std::string& what, double bytes) override;
  void traffic(const std::string& axis, const std::string& what, double bytes) override;
  void host_traffic(const HostTraffic& traffic) override { copies_.push_back({speaker_, traffic}); }
  void updates(double elements) override { update_ = {elements}; }
  void updates_on_host(double elements, bool to_device) override { update_ = {elements, true, to_device}; }

  const std::vector<Claim>& claims() const { return claims_; }
  const std::vector<Share>& shares() const { return shares_; }
  const std::vector<Note>& offers() const { return offers_; }
  const std::vector<Need>& needs() const { return needs_; }
  const std::vector<Note>& refusals() const { return refusals_; }
  const std::vector<Note>& costs() const { return costs_; }
  const std::vector<Note>& no_effects() const { return no_effects_; }
  const std::vector<Memory>& memories() const { return memories_; }
  const std::vector<Traffic>& traffics() const { return traffics_; }
  const std::vector<Copies>& copies() const { return copies_; }
  const std::vector<std::string>& capturables() const { return capturables_; }  // ids of the plugins that called it
  // What updates() or updates_on_host() reported last; otherwise all trainable parameters of the rank with the most.
  struct Update {
    double elements = 0;
    bool on_host = false, to_device = false;
  };
  Update update() const;
  double updated_elements() const { return update().elements; }

 private:
  ModelFacts model_;
  RunFacts run_;
  Fact<int64_t> heads_, groups_;  // before this round's split_attention_heads
  std::string speaker_;
  std::vector<Claim> claims_;
  std::vector<Share> shares_;
  std::vector<Note> offers_, refusals_, costs_, no_effects_;
  std::vector<Need> needs_, taken_;
  std::vector<Memory> memories_;
  std::vector<Traffic> traffics_;
  std::vector<Copies> copies_;
  std::optional<Update> update_;
  std::vector<std::string> capturables_;
};

}  // namespace drivetrain
