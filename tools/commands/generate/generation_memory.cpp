#include "generate/generation_memory.h"

#include <c10/util/accumulate.h>

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "plugin_calls/plugin_call.h"
#include "report/text_table.h"

namespace drivetrain {
namespace {

// Of one unit in the first pass, which has all columns of the prompts: what it keeps for a backward is what a forward
// has made at its end, the most of it at one time.
double first_pass_bytes(const PreparedRun& run, const Unit& unit, const GrowingTexts& texts) {
  VisitShape shape;
  shape.rows = static_cast<double>(texts.rows);
  shape.tokens = shape.rank_tokens = shape.rows * static_cast<double>(texts.prompt);
  shape.dtype = shape.grad = run.plan.dtypes.types.param;
  shape.on_cpu = run.plan.run.device == "cpu";
  const std::string model = run.plan.id_of(Model::kKind);
  const auto memory = plugin_call({model, "visit_memory", unit.name()},
                                  [&] { return unit.visit_memory(shape, [](std::string_view) { return Keep::all; }); });
  return memory ? memory->kept.bytes() : 0;
}

std::string megabytes(double bytes) { return formatted("%.2f", bytes / 1e6); }

}  // namespace

GenerationMemory planned_generation(const PreparedRun& run, const GrowingTexts& texts) {
  const ModelFacts& facts = run.plan.model_alone;
  const auto rows = static_cast<double>(texts.rows);
  const auto element = static_cast<double>(c10::elementSize(run.plan.dtypes.types.param));
  GenerationMemory memory;
  for (const ParamPtr& param : run.units.all())
    memory.weights += element * static_cast<double>(c10::multiply_integers(param->layout.global_shape));
  if (facts.num_attention_heads.known() && facts.head_dim.known()) {
    const int64_t groups = facts.num_query_groups.value_or(facts.num_attention_heads.value());
    const int64_t positions = std::min(facts.max_position_embeddings, texts.prompt + texts.most);
    memory.keys = 2 * element * rows * static_cast<double>(facts.num_layers * groups * facts.head_dim.value()) *
                  static_cast<double>(positions);
  }
  memory.passing = element * rows * static_cast<double>(texts.prompt * facts.vocab_size);  // logits of every column
  for (const UnitPtr& unit : run.units.units)
    if (unit->is_block()) memory.passing = std::max(memory.passing, first_pass_bytes(run, *unit, texts));
  return memory;
}

std::string generation_memory_text(const GrowingTexts& texts, const GenerationMemory& planned,
                                   const std::optional<GenerationMemory>& measured) {
  std::vector<TextRow> rows = {{"memory, MB", "planned"}};
  if (measured) rows.front().push_back("measured");
  const auto add = [&](const char* what, const std::optional<double>& plan, const std::optional<double>& found) {
    rows.push_back({what, plan ? megabytes(*plan) : "not known"});
    if (measured) rows.back().push_back(found ? megabytes(*found) : "none");
  };
  const GenerationMemory found = measured.value_or(GenerationMemory());
  add("weights", planned.weights, found.weights);
  add("keys and values", planned.keys, found.keys);
  add("passing", planned.passing, found.passing);
  add("together", planned.together(), found.together());
  if (measured) rows.push_back({"before, while weights were read", "", megabytes(found.loading)});
  return concat(texts.rows, texts.rows == 1 ? " text of " : " texts of ", texts.prompt, " tokens and ", texts.most,
                " more\n", aligned(rows, "", {1, 2}));
}

}  // namespace drivetrain
