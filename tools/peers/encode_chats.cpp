// Conversations as tokens, for tools/peers/chat_token_counts.py: a JSON object per line of the input, with "messages",
// "tools" and "tokenizer", a folder, is answered by a line with "ids" and "mask", or with "error". The chat template is
// the folder's.
#include <iostream>
#include <map>
#include <string>

#include <drivetrain/error.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/plugins.h>
#include <drivetrain/tokenizer.h>
#include <drivetrain/toolkit/chat/chat_template_files.h>
#include <drivetrain/toolkit/text/json_line.h>

#include "jinja_encoder.h"

namespace drivetrain {
namespace {

class Tokenizers {
 public:
  const Tokenizer& in(const std::string& folder) {
    auto& opened = opened_[folder];
    if (opened) return *opened;
    for (const std::string& name : test::installed_plugins().names(Tokenizer::kKind)) {
      auto made = test::installed_plugins().make<Tokenizer>(name, "{}", host_.services);
      if (made->recognizes(folder).empty()) continue;
      made->open(folder);
      opened = made;
    }
    if (!opened) throw fail(ErrorCode::config, folder, ": no tokenizer recognizes it");
    return *opened;
  }

 private:
  const test::Host host_;
  std::map<std::string, std::shared_ptr<Tokenizer>> opened_;
};

template <class Numbers>
Value list_of(const Numbers& numbers) {
  Value::Array list;
  for (const auto number : numbers) list.push_back(static_cast<int64_t>(number));
  return Value(std::move(list));
}

Value answer(Tokenizers& tokenizers, const Value& line) {
  Value found = Value::object();
  try {
    const std::string& folder = line.find("tokenizer")->as_string();
    const Tokenizer& tokenizer = tokenizers.in(folder);
    const instruction::JinjaEncoder encoder(tokenizer, read_folder_templates(folder), "", {"assistant"}, {});
    instruction::FieldNames names;
    names.template_reads = [&](const std::string& key) { return encoder.reads(key); };
    const instruction::Encoded encoded = encoder.encode(instruction::read_conversation(line, names));
    found.set("ids", list_of(encoded.tokens));
    found.set("mask", list_of(encoded.learned));
  } catch (const Error& e) {
    found.set("error", e.what());
  }
  return found;
}

}  // namespace
}  // namespace drivetrain

int main() {
  drivetrain::Tokenizers tokenizers;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << drivetrain::answer(tokenizers, drivetrain::parse_json_line(line)).to_json() << '\n';
}
