#include "settings.h"

#include <drivetrain/error.h>

namespace drivetrain::megatron {
namespace {

using Kind = PickleNode::Kind;

const PickleNode* find(const TorchFile& file, const char* key) { return file.tree().find(file.root(), key); }

const PickleNode* option(const TorchFile& file, const char* name) {
  const PickleNode* const args = find(file, "args");
  return args ? file.tree().find(*args, name) : nullptr;
}

}  // namespace

void check_version(const TorchFile& file, bool versioned) {
  const PickleNode* const node = find(file, "checkpoint_version");
  if (!node && !versioned) return;
  const double version = node ? file.number(*node, "checkpoint_version") : 0;
  if (version == 2 || version == 3) return;
  throw fail(ErrorCode::checkpoint, file.path(), ": has ",
             node ? concat("checkpoint_version ", version) : "no checkpoint_version",
             ", in which queries, keys and values stand in an order that is not read; that of 2.0 and 3.0 is",
             "\n   load it with Megatron-LM and save it again, which writes 3.0");
}

int64_t option_of(const TorchFile& file, const char* name) {
  const PickleNode* const node = option(file, name);
  return node && node->kind != Kind::none ? file.tree().integer(*node, name) : 0;
}

int64_t iteration_of(const TorchFile& file) {
  const PickleNode* const node = find(file, "iteration");
  return node && node->kind != Kind::none ? file.tree().integer(*node, "iteration") : 0;
}

std::string optimizer_note(const std::string& folder) {
  return concat(folder,
                ": the optimizer's state of Megatron-LM is not read, nor are the main copies of the weights in ",
                "it: the weights are those that the model computes with");
}

}  // namespace drivetrain::megatron
