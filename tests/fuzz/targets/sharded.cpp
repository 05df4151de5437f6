// The JSON files of a checkpoint of ours. The input is their body: the digest in front of it is made right.
#include <drivetrain/value.h>

#include "all.h"
#include "checkpoint_store/sharded/index.h"
#include "checkpoint_store/sharded/manifest.h"
#include "checkpoint_store/sharded/signed_json.h"

namespace drivetrain::fuzz {
namespace {

constexpr const char* kShardedPlace = "step-00000040/fuzz.json";

void read_sharded(const std::string& input) {
  const Value body = parse_json(input, kShardedPlace);
  if (!body.is_object() || body.members().empty()) throw fail(ErrorCode::config, kShardedPlace, ": is no object");
  const std::string text = sharded::signed_json(body);
  if (body.find("slices")) {
    const std::string again = sharded::index_text(sharded::read_index(kShardedPlace, text));
    FUZZ_CHECK(sharded::index_text(sharded::read_index(kShardedPlace, again)) == again);
  } else {
    const std::string again = sharded::manifest_text(sharded::read_manifest(kShardedPlace, text, "step-00000040"));
    FUZZ_CHECK(sharded::manifest_text(sharded::read_manifest(kShardedPlace, again, "step-00000040")) == again);
  }
}

// Without the line of the digest.
std::string body_of(const std::string& text) { return "{" + text.substr(text.find('\n')); }

Inputs sharded_seeds() {
  const sharded::SaveIdentity identity{"step-00000040", 40, 0, 1, std::string(32, 'a')};
  sharded::RankIndex index{identity, 4096, 1024, {}, {}};
  for (uint64_t i = 0; i < 4; ++i) index.chunks.push_back({i, ~i});
  index.slices = {{"model/wte.weight", {8, 4}, at::kFloat, {0, 0, 8, 4}, 512, 640},
                  {"model/bias", {4}, at::kBFloat16, {1, 0, 2, 1}, 640, 644}};
  sharded::Manifest manifest{"step-00000040", 40, 1.75e9, {{identity, 4096, 900, {1, 2}}}, Value::object()};
  return {body_of(sharded::index_text(index)), body_of(sharded::manifest_text(manifest))};
}

}  // namespace

Target sharded_target() {
  return {"sharded",
          "indices and manifests of checkpoints of checkpoint_store/sharded",
          read_sharded,
          sharded_seeds,
          {"\"box\":", "\"bytes\":", "\"chunks\":", "\"slices\":", "\"shape\":", "[]", "{}", "null", "-1", "1e18",
           "\"F8_E4M3\"", "9223372036854775807", "[4294967296,4294967296]"},
          kShardedPlace};
}

}  // namespace drivetrain::fuzz
