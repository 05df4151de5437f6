#include "sharding/bits.h"

#include <bit>
#include <cinttypes>
#include <map>

#include <drivetrain/random.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/run_program.h"

namespace drivetrain::test {
namespace {

std::string hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

// A norm is null where an update was left out.
std::string bits_of(const Value& figure) {
  if (figure.is_null() || figure.is_bool()) return figure.to_json();
  return hexadecimal(std::bit_cast<uint64_t>(figure.as_double()));
}

std::string bits_of(const RunResult& run) {
  std::string bits;
  for (const Value& line : run.metrics) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "valid_loss", "loss_scale", "skipped"})
      if (const Value* figure = line.find(key)) bits += concat(key, " ", bits_of(*figure), " ");
    bits += "\n";
  }
  return bits + "weights " + hexadecimal(hash_name(file_bytes(run.weights_file()))) + "\n";
}

}  // namespace

Bits train_bits(Value config, int ranks, const Registry& registry) {
  const TempFolder folder;
  config.set("output_dir", folder.path("run"));
  const RunResult run = run_threads(config, ranks, registry);
  EXPECT_EQ(run.metrics.size(), 3u);
  const std::string text = bits_of(run);
  const Value& norm = *run.metrics.back().find("grad_norm");
  return {text, hexadecimal(hash_name(text)), file_bytes(run.folder + "/resolved.json"),
          norm.is_null() ? 0 : norm.as_double()};
}

Bits train_bits(const TableCell& cell) {
  const Bits bits = train_bits(config_of(cell), cell.setting.ranks);
  EXPECT_NE(bits.resolved.find(concat("\"data_parallel/", cell.strategy->plugin, "\"")), std::string::npos);
  return bits;
}

const Bits& reference_of(const Setting& setting) {
  static std::map<std::string, Bits> made;
  const auto [entry, fresh] = made.try_emplace(name_of(setting));
  if (fresh) entry->second = train_bits(TableCell{setting, &sharding_strategies().front(), true});
  return entry->second;
}

}  // namespace drivetrain::test
