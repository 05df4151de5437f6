#include <drivetrain/error.h>

#include "definition.h"

namespace drivetrain::bpe {
namespace {

bool flag(const Value& section, const char* key, bool otherwise) {
  const Value* value = section.find(key);
  return value && !value->is_null() ? value->as_bool() : otherwise;
}

Cut pattern_cut(std::string_view expression, Cut::Kind kind, const std::string& where) {
  Cut cut{.kind = kind};
  cut.patterns.emplace_back(expression, where);
  return cut;
}

// A literal text as an expression.
std::string quoted(const std::string& text) {
  std::string made;
  for (const char c : text) {
    if (std::string_view("\\^$.*+?()[]{}|").find(c) != std::string_view::npos) made += '\\';
    made += c;
  }
  return made;
}

Cut read_split(const Value& section, const std::string& where) {
  refuse_other_keys(section, {"type", "pattern", "behavior", "invert"}, where);
  const Value* pattern = section.find("pattern");
  const Value* expression = pattern ? pattern->find("Regex") : nullptr;
  const Value* text = pattern ? pattern->find("String") : nullptr;
  if (!expression && !text) throw fail(ErrorCode::config, where, ": \"pattern\" has neither \"Regex\" nor \"String\"");
  const Value* behavior = section.find("behavior");
  const std::string how = behavior ? behavior->as_string() : "";
  const bool invert = flag(section, "invert", false);
  if (how != "Isolated" && !(how == "Removed" && invert))
    throw fail(ErrorCode::config, where, ": the behavior \"", how, "\"", invert ? " with" : " without",
               " \"invert\" is not known in this version; known are Isolated, and Removed with \"invert\"");
  return pattern_cut(expression ? expression->as_string() : quoted(text->as_string()),
                     how == "Isolated" ? Cut::Kind::pattern : Cut::Kind::only_matches, where);
}

void read_step(const Value& section, const std::string& where, std::vector<Cut>& cuts, bool& bytes) {
  const std::string type = type_of(section, where);
  if (bytes) throw fail(ErrorCode::config, where, ": a step after ByteLevel, ", type, ", is not known in this version");
  if (type == "Sequence") {
    refuse_other_keys(section, {"type", "pretokenizers"}, where);
    if (const Value* steps = section.find("pretokenizers"))
      for (const Value& step : steps->items()) read_step(step, where, cuts, bytes);
  } else if (type == "Split") {
    cuts.push_back(read_split(section, where));
  } else if (type == "Digits") {
    refuse_other_keys(section, {"type", "individual_digits"}, where);
    cuts.push_back({.kind = flag(section, "individual_digits", false) ? Cut::Kind::digit : Cut::Kind::digits});
  } else if (type == "ByteLevel") {
    refuse_other_keys(section, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, where);
    if (flag(section, "add_prefix_space", true)) cuts.push_back({.kind = Cut::Kind::space_in_front});
    if (flag(section, "use_regex", true)) cuts.push_back(pattern_cut(kGpt2Pattern, Cut::Kind::pattern, where));
    bytes = true;
  } else {
    throw fail(ErrorCode::config, where, ": the pre-tokenizer ", type,
               " is not known in this version; known are Split, Digits, ByteLevel and Sequence");
  }
}

}  // namespace

std::vector<Cut> read_pre_tokenizer(const Value& section, const std::string& where) {
  std::vector<Cut> cuts;
  bool bytes = false;
  if (section.is_object()) read_step(section, where, cuts, bytes);
  if (!bytes)
    throw fail(ErrorCode::config, where, ": has no step ByteLevel: tokenizer/bpe reads byte-level vocabularies only");
  return cuts;
}

bool reads_nfc(const Value* normalizer, const std::string& where) {
  if (!normalizer || normalizer->is_null()) return false;
  const std::string type = type_of(*normalizer, where);
  if (type == "NFC") return true;
  if (type != "Sequence")
    throw fail(ErrorCode::config, where, ": the normalizer ", type, " is not known in this version; known are NFC and ",
               "none");
  bool nfc = false;
  if (const Value* steps = normalizer->find("normalizers"))
    for (const Value& step : steps->items()) nfc = reads_nfc(&step, where) || nfc;
  return nfc;
}

}  // namespace drivetrain::bpe
