#include "shared/open_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/trust.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

std::string id_of(const std::string& name) { return concat(Tokenizer::kKind, "/", name); }

void check_id(const std::optional<int32_t>& id, const char* what, const OpenedTokenizer& opened) {
  if (id && (*id < 0 || *id >= opened.facts.vocab_size))
    throw fail(ErrorCode::plugin, opened.id, ": ", what, " is ", *id, ", and the vocabulary has ",
               opened.facts.vocab_size, " ids");
}

bool names_plugin(const Value* section) { return section && (section->is_object() || section->is_string()); }

// The first key "tokenizer" of sections within sections: a dataset may have another one as its source.
const Value* tokenizer_within(const Value& section) {
  if (!section.is_object()) return nullptr;
  if (const Value* own = section.find("tokenizer"); names_plugin(own)) return own;
  for (const Value::Member& member : section.members())
    if (const Value* found = tokenizer_within(member.value)) return found;
  return nullptr;
}

}  // namespace

const Value* tokenizer_section(const Value& config) {
  if (const Value* own = config.find("tokenizer"); names_plugin(own)) return own;
  const Value* const dataset = config.find("dataset");
  return dataset ? tokenizer_within(*dataset) : nullptr;
}

std::vector<TokenizerReaders::Recognized> TokenizerReaders::who_recognizes(const std::string& place) const {
  std::vector<Recognized> list;
  for (const std::string& name : registry_.names(Tokenizer::kKind)) {
    const auto one = registry_.create<Tokenizer>(name, nullptr, services_);
    const std::string phrase = plugin_call({id_of(name), "recognizes"}, [&] { return one->recognizes(place); });
    if (!phrase.empty()) list.push_back({name, phrase});
  }
  return list;
}

bool TokenizerReaders::recognized(const std::string& place) const { return who_recognizes(place).size() == 1; }

OpenedTokenizer TokenizerReaders::open_plugin(const std::string& name, const void* options,
                                              const std::string& place) const {
  const auto made = registry_.create<Tokenizer>(name, options, services_);
  OpenedTokenizer opened{id_of(name), made, {}};
  plugin_call({.id = opened.id, .hook = "open", .keeps_errors = true}, [&] { made->open(place); });
  opened.facts = plugin_call({.id = opened.id, .hook = "facts"}, [&] { return made->facts(); });
  if (opened.facts.vocab_size < 1)
    throw fail(ErrorCode::plugin, opened.id, ": has a vocabulary of ", opened.facts.vocab_size, " ids");
  check_id(opened.facts.bos, "bos", opened), check_id(opened.facts.eos, "eos", opened);
  check_id(opened.facts.pad, "pad", opened), check_id(opened.facts.eod, "eod", opened);
  for (const int32_t id : opened.facts.prefix) check_id(id, "an id of the prefix", opened);
  return opened;
}

OpenedTokenizer TokenizerReaders::open(const std::string& place) const {
  const std::vector<std::string> names = registry_.names(Tokenizer::kKind);
  std::error_code unknown;
  if (!fs::exists(place, unknown)) {
    if (std::find(names.begin(), names.end(), place) != names.end()) return open_plugin(place, nullptr, "");
    throw fail(ErrorCode::config, "tokenizer ", place, ": there is no such folder or file, and no plugin of that name",
               "\n   installed are ", join(names));
  }
  const std::vector<Recognized> found = who_recognizes(place);
  if (found.empty())
    throw fail(ErrorCode::config, "tokenizer ", place,
               ": none of the installed tokenizers knows what is there: ", join(names),
               "\n   give a folder that holds the files of one of them");
  if (found.size() > 1)
    throw fail(ErrorCode::config, "tokenizer ", place, ": looks like several things: ", found[0].phrase, "; ",
               found[1].phrase, "\n   give the file of one of them instead of the folder");
  return open_plugin(found[0].name, nullptr, place);
}

OpenedTokenizer TokenizerReaders::open_section(const Value& section, const std::string& file) const {
  const Value* type = section.is_string() ? &section : section.find("type");
  if (!type || !type->is_string()) throw fail(ErrorCode::config, file, ": the section \"tokenizer\" has no \"type\"");
  const Value* params = section.find("params");
  Problems problems;
  const auto options = registry_.options(Tokenizer::kKind, type->as_string())
                           .parse(params ? *params : Value(), id_of(type->as_string()), "tokenizer", problems);
  problems.throw_if_any();
  return open_plugin(type->as_string(), options.get(), "");
}

int32_t end_of_document(const OpenedTokenizer& opened, const std::string& token) {
  if (!token.empty()) {
    if (const auto id = opened.tokenizer->id_of(token)) return *id;
    throw fail(ErrorCode::config, "--eod ", token, ": ", opened.id, " has no such token");
  }
  if (opened.facts.eod) return *opened.facts.eod;
  throw fail(ErrorCode::config, "--append-eod: the files of the tokenizer do not say which token ends a document",
             "\n   name it: --eod TOKEN");
}

Value tokenizer_identity(const OpenedTokenizer& opened) {
  Value identity = Value::object();
  identity.set("plugin", opened.id);
  Value::Array digests;
  for (const std::string& path : opened.facts.files) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw fail(ErrorCode::io, path, ": cannot be read");
    digests.emplace_back(fs::path(path).filename().string() + " " + sha256(bytes));
  }
  identity.set("files", std::move(digests));
  return identity;
}

}  // namespace drivetrain
