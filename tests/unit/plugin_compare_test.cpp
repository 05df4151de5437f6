// The rule of every fingerprint field, and the digest of plugins.allow.
#include <gtest/gtest.h>

#include "base/trust.h"
#include "plugin/compare.h"
#include "plugin/kinds.h"
#include "plugin/manifest.h"

namespace drivetrain {
namespace {

// The verdict on one field when the plugin has `value` there and is like the runtime otherwise.
FieldVerdict verdict_on(const char* field, Value value, Machine machine = this_machine(), bool cuda = false) {
  const Value runtime = runtime_fingerprint();
  Value plugin = runtime;
  plugin.set("cuda_runtime", 0);
  plugin.set(field, std::move(value));
  for (const FieldVerdict& f : compare_fingerprints(plugin, runtime, machine, cuda))
    if (f.field == field) return f;
  throw fail(ErrorCode::internal, "no such field");
}

std::string plugin_error(const std::string& manifest) {
  try {
    parse_manifest(manifest);
  } catch (const Error& e) {
    return e.code() == ErrorCode::plugin ? e.what() : "wrong code";
  }
  return "accepted";
}

TEST(Compare, the_runtime_accepts_itself) {
  for (const FieldVerdict& f :
       compare_fingerprints(runtime_fingerprint(), runtime_fingerprint(), this_machine(), false))
    EXPECT_EQ(f.level, FieldVerdict::same) << f.field;
}

TEST(Compare, what_decides_layout_must_match) {
  EXPECT_EQ(verdict_on("door", 2).level, FieldVerdict::refusal);
  EXPECT_EQ(verdict_on("api", "0123").level, FieldVerdict::refusal);
  EXPECT_EQ(verdict_on("libtorch", "2.11.0+cpu").level, FieldVerdict::refusal);
  EXPECT_EQ(verdict_on("cxx11_abi", 0).level, FieldVerdict::refusal);
  EXPECT_EQ(verdict_on("compiler_abi", 1002).level, FieldVerdict::refusal);
  EXPECT_EQ(verdict_on("containers", "debug").level, FieldVerdict::refusal);
  EXPECT_EQ(verdict_on("sanitizer", "other").level, FieldVerdict::refusal);
}

TEST(Compare, only_the_headers_that_a_plugin_reaches_count) {
  const Value runtime = runtime_fingerprint();
  const auto verdict = [&](const Value& plugin) {
    for (const FieldVerdict& f : compare_fingerprints(plugin, runtime, this_machine(), false))
      if (f.field == "api") return f;
    throw fail(ErrorCode::internal, "no such field");
  };
  const auto built_against = [&](const char* changed, const std::vector<std::string>& reached) {
    Value digests = *runtime.find("api"), fingerprint = runtime;
    digests.set(changed, "0123456789abcdef");
    fingerprint.set("api", std::move(digests));
    return verdict(with_reached_headers(fingerprint, reached));
  };
  EXPECT_EQ(built_against("schedule.h", {"attention.h", "plugin.h"}).level, FieldVerdict::same);
  const FieldVerdict refused = built_against("attention.h", {"attention.h", "plugin.h"});
  EXPECT_EQ(refused.level, FieldVerdict::refusal);
  EXPECT_NE(refused.verdict.find("attention.h"), std::string::npos) << refused.verdict;
  EXPECT_EQ(refused.verdict.find("plugin.h"), std::string::npos) << refused.verdict;
  EXPECT_EQ(built_against("new_kind.h", {"attention.h"}).level, FieldVerdict::same) << "a header of a newer release";
  EXPECT_EQ(built_against("new_kind.h", {"new_kind.h"}).level, FieldVerdict::refusal);
  EXPECT_EQ(built_against("mesh.h", {}).level, FieldVerdict::refusal) << "a library that lists none";
}

TEST(Compare, releases_are_notes_and_another_build_of_libtorch_is_a_warning) {
  EXPECT_EQ(verdict_on("sdk", "0.0.9").level, FieldVerdict::note);
  EXPECT_EQ(verdict_on("compiler", "gcc 99.1").level, FieldVerdict::note);
  EXPECT_EQ(verdict_on("libstdcxx", "99").level, FieldVerdict::note);
  EXPECT_EQ(verdict_on("libtorch_build_id", "ff").level, FieldVerdict::warning);
}

TEST(Compare, linked_libraries_count_only_where_they_are_linked) {
  EXPECT_EQ(verdict_on("cuda_runtime", 0).level, FieldVerdict::same);
  EXPECT_EQ(verdict_on("cuda_runtime", 11).level, FieldVerdict::refusal);
  EXPECT_EQ(verdict_on("nccl_major", 0).level, FieldVerdict::same);
  EXPECT_EQ(verdict_on("nccl_major", 1).level, FieldVerdict::refusal);
}

TEST(Compare, the_processor_must_have_what_the_code_was_compiled_for) {
  const Machine old{"x86-64 avx", 0};
  EXPECT_EQ(verdict_on("cpu", "x86-64", old).level, FieldVerdict::same);
  const FieldVerdict f = verdict_on("cpu", "x86-64 avx avx2 fma", old);
  EXPECT_EQ(f.level, FieldVerdict::refusal);
  EXPECT_EQ(f.verdict, "this processor lacks avx2 fma");
}

TEST(Compare, the_device_must_be_covered_by_binary_code_of_its_generation_or_by_older_ptx) {
  const auto level = [](const char* built, int device, bool cuda = true) {
    return verdict_on("cuda_architectures", built, {"x86-64", device}, cuda).level;
  };
  EXPECT_EQ(level("sm_90", 90), FieldVerdict::same);
  EXPECT_EQ(level("sm_80", 89), FieldVerdict::same) << "8.0 code runs on 8.9";
  EXPECT_EQ(level("sm_80", 90), FieldVerdict::refusal);
  EXPECT_EQ(level("sm_80 compute_80", 90), FieldVerdict::same) << "PTX is translated";
  EXPECT_EQ(level("sm_100", 90), FieldVerdict::refusal);
  EXPECT_EQ(level("", 90), FieldVerdict::refusal);
  EXPECT_EQ(level("", 90, false), FieldVerdict::same) << "no CUDA code in it";
  EXPECT_EQ(level("sm_80", 0), FieldVerdict::same) << "no device in use";
}

TEST(Compare, a_field_the_plugin_does_not_have_is_shown_as_nothing) {
  Value plugin = runtime_fingerprint();
  plugin.erase("libtorch");
  const auto fields = compare_fingerprints(plugin, runtime_fingerprint(), this_machine(), false);
  EXPECT_TRUE(is_refused(fields));
  EXPECT_NE(refusal_text("a/b", "f.so", fields).find("plugin nothing"), std::string::npos);
}

TEST(Manifest, every_shortcoming_has_its_message) {
  const std::string magic = "DRIVETRAIN-MANIFEST 1\n",
                    head = magic + R"({"library":"l","version":"1","licence":"MIT",)";
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(plugin_error(""), "manifest of another form"));
  EXPECT_TRUE(has(plugin_error(magic + "{"), "damaged manifest"));
  EXPECT_TRUE(has(plugin_error(magic + "{}"), "without \"library\""));
  EXPECT_TRUE(has(plugin_error(head + R"("entries":[]})"), "without a fingerprint"));
  EXPECT_TRUE(has(plugin_error(head + R"("entries":[],"fingerprint":{}})"), "no entries"));
  EXPECT_TRUE(has(plugin_error(head + R"("entries":[{"kind":7}],"fingerprint":{}})"), "damaged manifest"));
  EXPECT_EQ(plugin_error(head + R"("entries":[{"kind":"model","name":"m","summary":"s"}],"fingerprint":{}})"),
            "accepted");
}

TEST(Kinds, there_are_twenty_and_each_says_what_it_is) {
  EXPECT_EQ(kind_rules().size(), 20u);
  for (const KindRule& rule : kind_rules()) EXPECT_STRNE(kind_summary(rule.kind), "") << rule.kind;
}

TEST(Trust, sha256_of_the_standard_vectors) {  // FIPS 180-4, examples; and the lengths around a block's end
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace drivetrain
