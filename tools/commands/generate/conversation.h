// Conversations as the text that the model was trained on, by the chat template of its tokenizer. Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generate/prompts.h"
#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL ConversationWriter {
 public:
  // The template is that of the tokenizer's folder, where one is named (`tokenizer`), else of the model's (`folder`),
  // else of the folder of the files that the model's tokenizer was read from. `chat`: false: none is looked for.
  // `name`: of one of several templates; empty: as transformers chooses. Error(config) where there is none.
  ConversationWriter(const std::string& folder, const std::string& tokenizer,
                     const std::vector<std::string>& tokenizer_files, bool chat, const std::string& name);

  // With the begin of an answer at its end. Error(config) with the place of the prompt, and what the template refuses.
  std::string write(const Prompt& prompt) const;

 private:
  struct Templates;
  std::shared_ptr<const Templates> templates_;
};

}  // namespace drivetrain
