// Chat templates as Hugging Face's tokenizers have them: programs in Jinja that write a conversation as one text. The
// part of Jinja that such templates use, with the settings of transformers (trim_blocks, lstrip_blocks, loop controls,
// {% generation %}); what is not in it is refused by name when the template is read, or when it is reached.
#pragma once

#include <cstddef>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain {

namespace jinja {
struct Program;
}

// A template that was read. Copies share it. Thread: const calls from any thread.
class ChatTemplate {
 public:
  // `where` names it in messages: "tokenizer_config.json". Error(config) with `where`, the line and what is wrong.
  ChatTemplate(const std::string& text, std::string where);

  const std::string& where() const { return where_; }
  const std::string& text() const { return text_; }
  // Whether {% generation %} marks what an assistant says.
  bool marks_answers() const { return marks_answers_; }
  // Whether the name stands anywhere in the program, as a variable, an attribute or a text: a key of a message that
  // does not is one that the template cannot read.
  bool mentions(const std::string& name) const { return names_.contains(name); }

  const jinja::Program& program() const { return *program_; }

 private:
  std::string where_, text_;
  std::shared_ptr<const jinja::Program> program_;
  std::set<std::string> names_;
  bool marks_answers_ = false;
};

struct ChatOptions {
  bool add_generation_prompt = false;                 // the beginning of an answer at the end
  std::map<std::string, std::string> special_tokens;  // "bos_token": "<s>"; one that is not here is undefined
  Value variables;                                    // an object of further ones: {"enable_thinking": false}
  std::optional<std::tm> now;                         // of strftime_now; default: the local time
};

struct RenderedChat {
  struct Span {
    size_t begin, end;  // bytes of the text
  };
  std::string text;
  std::vector<Span> assistant;  // what stands between {% generation %} and {% endgeneration %}, in order
};

// `messages`: an array of objects. `tools`: an array of JSON schemas, or null. Reasoning that a message has under one
// of its names (reasoning_content, thinking, reasoning) is given to the template under the others, too, as transformers
// does. Error(config) with the template, its line and what is wrong: what raise_exception says, a name that is not
// there, a loop without an end. Thread: any.
RenderedChat render_chat(const ChatTemplate& chat, const Value& messages, const Value& tools = {},
                         const ChatOptions& options = {});

}  // namespace drivetrain
