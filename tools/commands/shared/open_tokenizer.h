// The tokenizer that a user names by a folder, by a file or by the name of a plugin. Main thread.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/services.h>
#include <drivetrain/tokenizer.h>

#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

struct OpenedTokenizer {
  std::string id;  // "tokenizer/NAME"
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenizerFacts facts;
};

class DRIVETRAIN_INTERNAL TokenizerReaders {
 public:
  // Both outlive this and what it opens.
  TokenizerReaders(const Registry& registry, const Services& services) : registry_(registry), services_(services) {}

  // `place`: a folder or file, of which every installed tokenizer is asked; if there is none of that name, a plugin
  // that needs no files. Error(config) naming what is known if nobody knows it or two do.
  OpenedTokenizer open(const std::string& place) const;
  // Whether exactly one tokenizer recognises the folder or file; nobody is opened.
  bool recognized(const std::string& place) const;
  // The section "tokenizer" of a run's resolved.json.
  OpenedTokenizer open_section(const Value& section, const std::string& file) const;

 private:
  struct Recognized {
    std::string name, phrase;
  };
  std::vector<Recognized> who_recognizes(const std::string& place) const;
  OpenedTokenizer open_plugin(const std::string& name, const void* options, const std::string& place) const;

  const Registry& registry_;
  const Services& services_;
};

// The section of the tokenizer that a run's texts went through: "tokenizer", else the one that its dataset names,
// however deep. Null if there is none.
DRIVETRAIN_INTERNAL const Value* tokenizer_section(const Value& config);
// The id that separates documents: of `token` as the tokenizer spells it, or, if that is empty, its own. Error(config).
DRIVETRAIN_INTERNAL int32_t end_of_document(const OpenedTokenizer& opened, const std::string& token);
// Plugin, files and their digests, for comparing one preparation with the next.
DRIVETRAIN_INTERNAL Value tokenizer_identity(const OpenedTokenizer& opened);

}  // namespace drivetrain
