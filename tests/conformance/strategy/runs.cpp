// The cases of strategies that are whole runs.
#include <drivetrain/testkit/strategy/suite.h>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/stop.h>

namespace drivetrain::test {
namespace {

// Four experts, of which a token chooses `chosen`.
Value mixture(int64_t width, int64_t chosen) {
  const Value params =
      parse_json(concat(R"({"family": "mixtral", "num_layers": 2, "num_attention_heads": 2, "num_query_groups": 2,
        "ffn_hidden_size": 24, "vocab_size": 37, "max_position_embeddings": 8, "init_method_std": 0.5,
        "num_experts": 4, "num_experts_per_tok": )",
                        chosen, R"(, "hidden_size": )", width, "}"),
                 "suite");
  return Value::Object{{"model", Value::Object{{"type", "gpt"}, {"params", params}}}};
}

// Runs with a dense model, or, where the strategy refuses that, with a mixture: one that balances loads has nothing to
// do in a model without experts, and says so. `run` gets the sections that make the model.
template <class Run>
void with_a_model_that_it_takes(const Value& with_experts, const Run& run) {
  try {
    run(Value::object());
  } catch (const Error& dense) {
    if (dense.code() != ErrorCode::config) throw;
    try {
      run(with_experts);
    } catch (const Error&) {
      throw dense;
    }
    left_out("a model without experts", concat("it refuses one: ", reason_of(dense)));
  }
}

Value joined(Value sections, const Subject& subject) {
  sections.set(subject.kind, Value::Object{{"type", subject.name}, {"params", subject.options}});
  return sections;
}

// Hooks and decorators: the same run twice, to the bit.
void check_same_bits(const Subject& subject) {
  with_a_model_that_it_takes(
      mixture(16, 2), [&](const Value& model) { expect_same_bits_twice(joined(model, subject), 1, subject.train); });
}

void check_a_stop(const Subject& subject) {
  with_a_model_that_it_takes(mixture(16, 2), [&](const Value& model) {
    expect_same_bits_after_a_stop(joined(model, subject), 1, subject.train);
  });
}

// Every token chooses all experts here: a choice among fewer may turn with a rounding, and the figures with it.
void check_decorators(const Subject& subject) {
  with_a_model_that_it_takes(mixture(32, 4), [&](const Value& model) {
    expect_decorators_compose(
        {.sections = joined(Value::object(), subject), .common = model, .may_be_another_function = true},
        subject.train);
  });
}

}  // namespace

Suite strategy_run_cases() {
  return {{"gives_the_same_bits_twice", check_same_bits},
          {"state_survives_a_stop", check_a_stop},
          {"decorators_compose", check_decorators}};
}

}  // namespace drivetrain::test
