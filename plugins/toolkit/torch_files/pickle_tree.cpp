#include <drivetrain/toolkit/torch_files/pickle_tree.h>

namespace drivetrain {
namespace {

using Kind = PickleNode::Kind;

bool is_dict(const PickleNode& node) { return node.kind == Kind::dict; }

// Where the attributes of an object are; null: it has none. A state of a class with slots is a tuple of two.
const PickleNode* attributes(const PickleNode& node) {
  if (is_dict(node)) return &node;
  if (node.kind != Kind::call || !node.state) return nullptr;
  if (is_dict(*node.state)) return node.state;
  if (node.state->kind != Kind::tuple) return nullptr;
  for (const PickleNode* part : node.state->items)
    if (is_dict(*part)) return part;
  return nullptr;
}

}  // namespace

std::string described(const PickleNode& node) {
  switch (node.kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return node.integer ? "True" : "False";
    case Kind::integer:
      return concat("the integer ", node.integer);
    case Kind::real:
      return concat("the number ", node.real);
    case Kind::text:
      return concat("the text \"", node.text.substr(0, 60), "\"");
    case Kind::bytes:
      return concat(node.text.size(), " bytes");
    case Kind::list:
      return concat("a list of ", node.items.size());
    case Kind::tuple:
      return concat("a tuple of ", node.items.size());
    case Kind::set:
      return concat("a set of ", node.items.size());
    case Kind::dict:
      return concat("a dict of ", node.items.size() / 2);
    case Kind::global:
      return concat("the name ", node.text.substr(0, 120));
    case Kind::call:
      return concat("an object of ", node.callee->kind == Kind::global ? node.callee->text.substr(0, 120) : "a call");
    case Kind::persistent:
      return "a reference to a storage";
  }
  return "";
}

const PickleNode* PickleTree::find(const PickleNode& node, std::string_view key) const {
  const PickleNode* dict = attributes(node);
  if (!dict) return nullptr;
  // The last one counts, as it does for Python.
  for (size_t i = dict->items.size(); i >= 2; i -= 2)
    if (dict->items[i - 2]->kind == Kind::text && dict->items[i - 2]->text == key) return dict->items[i - 1];
  return nullptr;
}

const PickleNode& PickleTree::at(const PickleNode& node, std::string_view key) const {
  if (const PickleNode* value = find(node, key)) return *value;
  throw wrong(node, "\"", key, "\" is wanted in ", described(node), " and is not there");
}

int64_t PickleTree::integer(const PickleNode& node, std::string_view what) const {
  if (node.kind == Kind::integer || node.kind == Kind::boolean) return node.integer;
  throw wrong(node, what, " has to be an integer; found ", described(node));
}

double PickleTree::real(const PickleNode& node, std::string_view what) const {
  if (node.kind == Kind::real) return node.real;
  if (node.kind == Kind::integer || node.kind == Kind::boolean) return static_cast<double>(node.integer);
  throw wrong(node, what, " has to be a number; found ", described(node));
}

const std::string& PickleTree::text(const PickleNode& node, std::string_view what) const {
  if (node.kind == Kind::text) return node.text;
  throw wrong(node, what, " has to be a text; found ", described(node));
}

const std::vector<const PickleNode*>& PickleTree::list(const PickleNode& node, std::string_view what) const {
  if (node.kind == Kind::list || node.kind == Kind::tuple || node.kind == Kind::set) return node.items;
  const bool size = node.kind == Kind::call && node.callee->text == "torch Size";
  if (size && node.items.size() == 1 && node.items[0]->kind != Kind::call) return list(*node.items[0], what);
  static const std::vector<const PickleNode*> none;
  if (size && node.items.empty()) return none;
  throw wrong(node, what, " has to be a list; found ", described(node));
}

std::vector<int64_t> PickleTree::integers(const PickleNode& node, std::string_view what) const {
  std::vector<int64_t> numbers;
  for (const PickleNode* item : list(node, what)) numbers.push_back(integer(*item, what));
  return numbers;
}

std::vector<std::pair<const PickleNode*, const PickleNode*>> PickleTree::pairs(const PickleNode& node,
                                                                               std::string_view what) const {
  const PickleNode* dict = attributes(node);
  if (!dict) throw wrong(node, what, " has to be a dict; found ", described(node));
  std::vector<std::pair<const PickleNode*, const PickleNode*>> list;
  for (size_t i = 0; i + 1 < dict->items.size(); i += 2) list.emplace_back(dict->items[i], dict->items[i + 1]);
  return list;
}

}  // namespace drivetrain
