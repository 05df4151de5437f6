#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/text.h>

#include "checkpoint_tools/diff.h"
#include "checkpoint_tools/tool_text.h"
#include "report/text_table.h"

namespace drivetrain {
namespace {

using OfTensor = CheckpointDifferences::OfTensor;

std::string description(const StoredTensor& tensor) {
  return tensor.name.empty() ? "absent" : concat(dtype_name(tensor.dtype), " ", shape_text(tensor.shape));
}

bool is_compared(const OfTensor& one) { return one.a.name == one.b.name && one.a.shape == one.b.shape; }

const std::string& name_of(const OfTensor& one) { return one.a.name.empty() ? one.b.name : one.a.name; }

std::string changes_text(const std::string& heading, const std::vector<ConfigChange>& changes) {
  if (changes.empty()) return "";
  std::vector<TextRow> rows;
  for (const ConfigChange& change : changes) rows.push_back({change.path, change.before, change.now});
  return heading + "\n" + aligned(rows, "  ");
}

std::string forms_text(const std::vector<OfTensor>& tensors) {
  std::vector<TextRow> rows;
  for (const OfTensor& one : tensors)
    if (description(one.a) != description(one.b))
      rows.push_back({name_of(one), description(one.a), description(one.b)});
  return rows.empty() ? "" : "tensors of other forms, or in one only\n" + aligned(rows, "  ");
}

std::string values_text(const std::vector<OfTensor>& tensors) {
  std::vector<TextRow> rows{{"tensor", "largest |a-b|", "relative", "elements", "not finite"}};
  for (const OfTensor& one : tensors)
    if (is_compared(one) && one.elements.differing > 0)
      rows.push_back({name_of(one), short_number(one.elements.absolute), short_number(one.elements.relative),
                      concat(one.elements.differing, " of ", elements_of(one.a.shape)),
                      concat(one.elements.not_finite)});
  return rows.size() == 1 ? "" : "tensors of other values\n" + aligned(rows, "  ", {1, 2, 3, 4});
}

std::string verdict(const CheckpointDifferences& found, std::optional<double> tolerance) {
  if (found.equal_to_the_bit())
    return concat("equal to the bit: ", counted(found.equal_tensors, "tensor"), " and all counters",
                  found.config.empty() ? "" : "; the configs differ", "\n");
  const std::string rest = concat(counted(found.equal_tensors, "tensor"), " equal to the bit, ", found.tensors.size(),
                                  " not; ", counted(found.counters.size(), "counter"), " not equal");
  if (!found.state_differs()) return concat("equal within ", *tolerance, ": ", rest, "\n");
  return concat("different", tolerance ? concat(" beyond ", *tolerance) : "", ": ", rest, "\n");
}

Value change_values(const std::vector<ConfigChange>& changes) {
  Value list = Value::array();
  for (const ConfigChange& change : changes) {
    Value one = Value::object();
    one.set("path", change.path), one.set("a", change.before), one.set("b", change.now);
    list.items().push_back(one);
  }
  return list;
}

Value tensor_value(const OfTensor& one) {
  Value value = Value::object();
  value.set("name", name_of(one)), value.set("a", description(one.a)), value.set("b", description(one.b));
  if (!is_compared(one)) return value;
  value.set("elements", elements_of(one.a.shape)), value.set("differing", one.elements.differing);
  value.set("not_finite", one.elements.not_finite);
  value.set("largest_absolute", one.elements.absolute), value.set("largest_relative", one.elements.relative);
  return value;
}

}  // namespace

std::string diff_text(const CheckpointDifferences& found, const std::string& a, const std::string& b,
                      std::optional<double> tolerance) {
  return concat("a: ", a, "\nb: ", b, "\n") +
         changes_text("config (a, b); it does not count as a difference of the state", found.config) +
         changes_text("counters (a, b)", found.counters) + forms_text(found.tensors) + values_text(found.tensors) +
         verdict(found, tolerance);
}

Value diff_value(const CheckpointDifferences& found, const std::string& a, const std::string& b,
                 std::optional<double> tolerance) {
  Value value = Value::object(), tensors = Value::array();
  value.set("a", a), value.set("b", b);
  value.set("tolerance", tolerance ? Value(*tolerance) : Value());
  value.set("equal", !found.state_differs()), value.set("equal_to_the_bit", found.equal_to_the_bit());
  value.set("config", change_values(found.config)), value.set("counters", change_values(found.counters));
  for (const OfTensor& one : found.tensors) tensors.items().push_back(tensor_value(one));
  value.set("equal_tensors", count_value(found.equal_tensors)), value.set("tensors", tensors);
  return value;
}

}  // namespace drivetrain
