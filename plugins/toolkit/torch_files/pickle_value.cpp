#include <drivetrain/toolkit/torch_files/pickle_value.h>

namespace drivetrain {
namespace {

using Kind = PickleNode::Kind;

constexpr int kDeepest = 8, kMost = 20000;

class Reader {
 public:
  std::optional<Value> read(const PickleNode& node, int depth) {
    if (depth > kDeepest || ++count_ > kMost) return std::nullopt;
    switch (node.kind) {
      case Kind::none:
        return Value();
      case Kind::boolean:
        return Value(node.integer != 0);
      case Kind::integer:
        return Value(node.integer);
      case Kind::real:
        return Value(node.real);
      case Kind::text:
        return Value(node.text);
      case Kind::list:
      case Kind::tuple:
        return list(node, depth);
      case Kind::dict:
        return object(node, depth);
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<Value> list(const PickleNode& node, int depth) {
    Value::Array items;
    for (const PickleNode* item : node.items) {
      auto value = read(*item, depth + 1);
      if (!value) return std::nullopt;
      items.push_back(std::move(*value));
    }
    return Value(std::move(items));
  }
  // Members that have no plain value are left out.
  std::optional<Value> object(const PickleNode& node, int depth) {
    Value made = Value::object();
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      if (node.items[i]->kind != Kind::text) continue;
      if (auto value = read(*node.items[i + 1], depth + 1)) made.set(node.items[i]->text, std::move(*value));
      if (count_ > kMost) return std::nullopt;
    }
    return made;
  }

  int count_ = 0;
};

}  // namespace

std::optional<Value> plain_value(const PickleNode& node) { return Reader().read(node, 0); }

}  // namespace drivetrain
