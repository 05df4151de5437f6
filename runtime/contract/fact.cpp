#include <drivetrain/fact.h>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

const char* when(Round from) {
  switch (from) {
    case Round::configured:
      return "it is known in the first round of `plan` if the configuration gives it, else from the third one on, in "
             "training";
    case Round::axes:
      return "it is known from the second round of `plan` on, when every plugin has claimed its axes";
    case Round::data:
      return "it is known from the third round of `plan` on, in training, when the dataset is open";
    case Round::built:
      return "it is known in the last round of `plan`, when the model is built";
    case Round::if_model_has_it:
      return "the model does not say it";
  }
  return "";
}

}  // namespace

void throw_unknown_fact(const char* name, Round from) {
  throw fail(ErrorCode::plugin, "reads ", name, ", which is not known here: ", when(from), "\n   ask ", name,
             ".known() before, or use value_or");
}

}  // namespace drivetrain
