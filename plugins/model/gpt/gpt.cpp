// Decoder-only transformers, by options or from a Hugging Face folder. Reading order: shape.h, then ends.cpp and
// block.cpp for the forward pass, family.h and hf_config.h for other people's files.
#include <drivetrain/error.h>
#include <drivetrain/model.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/not_recorded.h>

#include <algorithm>
#include <cstdlib>

#include "experts.h"
#include "grown_vocabulary.h"
#include "megatron_rules.h"
#include "meta_rules.h"
#include "units.h"

namespace {

using namespace drivetrain;
using gpt::Shape;

// The embedding multiplies nothing: it moves about 6 numbers per element of its output, forward and backward. In the
// time a core moves one, it multiplies some ten: that of 60 multiply-adds, of which a product's forward pass, which
// costs are given in, has a third.
constexpr double kEmbeddingWork = 20;

// Where the shape came from: options alone, or a folder that they agree with.
struct Source {
  explicit Source(const gpt::Options& options) : family(gpt::read_family(options.family)) {
    if (options.from) folder = gpt::read_folder(*options.from, family);
    growth = gpt::read_growth(options, folder);
    if (folder) {
      family = folder->family;
      shape = gpt::shape_from_folder(options, grown(), folder->path);
    } else {  // options alone, or beside a checkpoint, which has weights alone
      shape = gpt::shape_from_options(options, family ? gpt::family_options(*family, options.hidden_size) : Value());
      check_family();
    }
  }
  gpt::FamilyPtr family;  // null: that of the shape
  Shape shape;
  std::optional<gpt::FolderConfig> folder;
  std::optional<gpt::GrownVocabulary> growth;

 private:
  // The folder's shape with the vocabulary that is wanted.
  Shape grown() const {
    Shape larger = folder->shape;
    if (growth) gpt::check_rows(*folder), larger.vocab = growth->size;
    return larger;
  }
  void check_family() const {
    if (!family) return;
    if (const std::string wrong = gpt::misfit(*family, shape); !wrong.empty())
      throw fail(ErrorCode::config, "model/gpt: family ", family->title, " cannot say ", wrong,
                 "\n   leave these options out, or the family");
  }
};

class Gpt : public Model {
 public:
  using Options = gpt::Options;
  static OptionTable options() {
    return gpt::option_table().finish([](Options& o) {
      const Source source(o);
      gpt::fill_in(o, source.shape);
      if (source.growth) o.resize_embeddings = gpt::growth_value(*source.growth);
    });
  }

  Gpt(const Options& options, const Services&) : source_(options), path_(options.from.value_or("")) {}

  ModelFacts facts() const override {
    const Shape& s = shape_;
    ModelFacts f;
    f.num_layers = s.layers, f.hidden_size = s.hidden, f.num_attention_heads = s.heads, f.num_query_groups = s.groups;
    f.head_dim = s.head_dim, f.vocab_size = s.vocab, f.max_position_embeddings = s.positions;
    f.parameters = s.parameters();
    // Columns that tensor parallelism cuts: experts stay whole.
    const int64_t shared = s.mixture.shared_ffn;
    if (s.any_dense() || shared > 0) f.ffn_hidden_size = s.any_dense() ? s.ffn : shared;
    if (s.mixture.experts > 0) {
      const int64_t each = s.expert_parameters(), layers = s.mixtures(s.layers);
      f.mixture = {s.mixture.experts, s.mixture.chosen, layers, layers * s.mixture.experts * each};
      f.parameters_active = f.parameters - layers * (s.mixture.experts - s.mixture.chosen) * each;
    }
    f.attention_dropout = s.attention_dropout, f.hidden_dropout = s.hidden_dropout;
    f.attention_softcap = s.attention_softcap;
    f.flops_per_token_fixed = 6.0 * static_cast<double>(s.matrix_parameters());
    const double of_layer = 6.0 * static_cast<double>(s.heads * s.head_dim);
    for (int64_t i = 0; i < s.layers; ++i) {
      if (s.window_of(i) == 0)
        f.flops_per_token_S += of_layer;
      else if (f.windowed.empty())
        f.windowed.push_back({s.window_of(i), of_layer});
      else
        f.windowed.front().flops_per_token_S += of_layer;
    }
    f.flops_formula =
        "exact: 6 per parameter of a matrix product (output layer included, embeddings not) + causal attention 6 L H d "
        "S; "
        "backward counts twice forward, no recompute";
    if (s.mixture.experts > 0)
      f.flops_formula += concat("; of experts the ", s.mixture.chosen, " that a token passes, and the router");
    if (!f.windowed.empty()) f.flops_formula += concat("; a window of ", s.window, " where there is one");
    return f;
  }

  void plan(PlanContext& ctx) override {
    plan_length(ctx);
    if (source_.folder)
      for (const auto& [key, why] : source_.folder->unknown)
        ctx.no_effect(concat("\"", key, "\" in ", source_.folder->path), why);
    // The runtime knows of the other two dropouts by facts().
    const bool draws = shape_.embedding_dropout > 0 && shape_.hidden_dropout == 0 && ctx.run().training;
    if (draws)
      ctx.offer(concat(toolkit::kNotRecorded, "embedding_dropout ", shape_.embedding_dropout,
                       " takes numbers that the host chooses in every step; 0 needs none"));
    else
      ctx.capturable();
    const double dropout = std::max({shape_.hidden_dropout, shape_.attention_dropout, shape_.embedding_dropout});
    const bool on_device = ctx.run().training && ctx.run().device != "cpu";
    if (shape_.mixture.experts > 0 && ctx.run().training) plan_balance(ctx);
    if (dropout > 0 && on_device)
      ctx.cost(concat("dropout ", dropout, " keeps steps from being recorded (\"capture\"); 0 avoids it"));
    if (shape_.vocab % 8 != 0 && on_device) {
      const int64_t padded = (shape_.vocab + 63) / 64 * 64;
      ctx.cost(concat("vocab_size ", shape_.vocab, " is no multiple of 8: rows of logits are stored ", padded,
                      " wide, so that products stay fast; with vocab_size ", padded,
                      " the vocabulary's own dimension fits their tiles too"));
    }
  }

  std::vector<UnitPtr> build(LayerFactory& layers) override {
    std::vector<UnitPtr> units = {gpt::make_embedding(shape_, length_, layers)};
    gpt::Rotaries rotaries;
    const auto rotary = [&](const gpt::RotaryScaling& scaling) {
      return std::make_shared<gpt::Rotary>(gpt::rotary_angles(scaling, shape_.rotary_dim(), length_));
    };
    if (shape_.rotary) rotaries.all = rotary(shape_.scaling);
    if (shape_.local_base) rotaries.local = rotary({*shape_.local_base});
    for (int64_t i = 0; i < shape_.layers; ++i) units.push_back(gpt::make_block(shape_, i, length_, rotaries, layers));
    units.push_back(gpt::make_head(shape_, shape_.tied ? units.front()->params().front() : nullptr, layers));
    return units;
  }

  // Multiply-adds per token; the attention's share at half of the longest sequence, which is its causal mean.
  double cost(const Unit& unit) const override {
    const Shape& s = shape_;
    const double head = static_cast<double>(s.hidden * s.vocab);
    if (unit.name() == "head") return head;
    if (unit.name() == "embedding") return kEmbeddingWork * static_cast<double>(s.hidden);
    const int64_t index = std::atoll(unit.name().c_str() + unit.name().find('.') + 1), window = s.window_of(index);
    const auto matrices = static_cast<double>(s.matrix_parameters(index));
    const double S = static_cast<double>(s.positions), w = static_cast<double>(window);
    return matrices + static_cast<double>(s.heads * s.head_dim) * (window > 0 ? 2 * w - w * w / S : S);
  }

  WeightRules weight_rules(const std::string& format) const override {
    if (format == "megatron_core") return gpt::megatron_rules(shape_);
    if (format == "meta") return gpt::meta_rules(shape_);
    if (format != "hf")
      throw fail(ErrorCode::config,
                 "model/gpt knows the weight formats \"hf\" (Hugging Face folders), \"megatron_core\" ",
                 "(Megatron-LM) and \"meta\" (torchtitan's Llama), not \"", format, "\"");
    const gpt::FamilyPtr family = source_.family ? source_.family : gpt::family_of(shape_);
    WeightRules rules = gpt::weight_rules(*family, shape_, source_.growth ? source_.growth->rows : AbsentRows::refused);
    rules.config = gpt::write_config(*family, shape_, source_.folder ? source_.folder->config : Value());
    return rules;
  }

  std::string weights_folder() const override { return path_; }

 private:
  // The angles of longrope depend on the length of the sequences at hand: those of the run, if they are known.
  void plan_length(PlanContext& ctx) {
    const gpt::RotaryScaling& scaling = shape_.scaling;
    if (scaling.type != "longrope" || !ctx.run().seq_length.known()) return;
    length_ = ctx.run().seq_length;
    ctx.cost(concat("rope_type longrope turns by its ", length_ > scaling.original_positions ? "long" : "short",
                    "_factor, since seq_length is ", length_, " and original_max_position_embeddings ",
                    scaling.original_positions));
  }

  void plan_balance(PlanContext& ctx) {
    const gpt::ExpertShape& m = shape_.mixture;
    ctx.cost(gpt::balance_line(m));
    const bool pooled = m.balance == BalanceLoss::pooled && m.balance_weight > 0;
    if (const auto& blocks = ctx.run().rank_layers;
        pooled && shape_.mixtures(shape_.layers) > 1 && blocks.known() && blocks < shape_.layers)
      ctx.refuse(concat("aux_loss pooled is of the loads of all ", shape_.layers, " layers together, and a rank has ",
                        blocks.value(), " of them; set aux_loss to per_layer"));
  }

  const Source source_;
  const Shape& shape_ = source_.shape;
  const std::string path_;  // of the folder; empty: initial weights by rule
  int64_t length_ = 0;      // of the run's sequences; 0: short ones
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Model, "gpt", Gpt)
