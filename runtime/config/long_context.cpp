#include "config/long_context.h"

#include "base/value_error.h"

namespace drivetrain {
namespace {

struct LongContextSection {
  bool enabled = true;
  double memory_gib = 0;
};

OptionTable long_context_table() {
  return table<LongContextSection>()
      .field("enabled", &LongContextSection::enabled, "whether something is chosen")
      .field("memory_gib", &LongContextSection::memory_gib, "GiB of one rank's device; 0: that of the machine at hand")
      .at_least(0);
}

}  // namespace

LongContext read_long_context(const Value& given, Problems& problems) {
  if (given.is_null()) return {};
  if (given.is_bool()) return {given.as_bool(), 0};
  if (!given.is_object()) {
    problems.add(given.where, concat("long_context: expected true, false or {\"memory_gib\": NUMBER}, found ",
                                     describe(given), boolean_hint(given)));
    return {};
  }
  static const OptionTable* const table = new OptionTable(long_context_table());
  const auto section =
      std::static_pointer_cast<LongContextSection>(table->parse(given, "long_context", "long_context", problems));
  return {section->enabled, section->memory_gib};
}

}  // namespace drivetrain
