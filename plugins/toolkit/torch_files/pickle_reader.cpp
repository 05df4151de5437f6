// The stack machine that builds a PickleTree.
#include <cstring>
#include <unordered_map>

#include <drivetrain/toolkit/torch_files/pickle_tree.h>

namespace drivetrain {

class PickleReader {
 public:
  PickleReader(PickleTree& tree, std::string_view pickle, uint64_t where)
      : tree_(tree), pickle_(pickle), where_(where) {}

  const PickleNode* read() {
    for (;;) {
      op_at_ = at_;
      const auto op = static_cast<unsigned char>(take(1).front());
      if (op == '.') break;
      if (!constant(op) && !text(op) && !container(op) && !memo(op) && !object(op)) throw unknown(op);
    }
    const PickleNode* root = pop();
    if (!stack_.empty() || !marks_.empty()) throw bad("the pickle ends with values left over");
    if (at_ != pickle_.size()) throw bad("bytes follow the end of the pickle");
    return root;
  }

 private:
  using Kind = PickleNode::Kind;
  static constexpr size_t kMostName = 4096;  // bytes, of a class and its module

  template <class... Parts>
  Error bad(const Parts&... parts) const {
    return fail(ErrorCode::checkpoint, tree_.file_, ": at byte ", where_ + op_at_, " of its pickle: ", parts...);
  }
  Error unknown(unsigned char op) const {
    return bad("opcode ", static_cast<int>(op), " is not known; pickles of torch.save do not have it");
  }

  std::string_view take(uint64_t bytes) {
    if (bytes > pickle_.size() - at_) throw bad("the pickle ends early");
    const std::string_view part = pickle_.substr(at_, bytes);
    at_ += bytes;
    return part;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string line() {
    const size_t end = pickle_.find('\n', at_);
    if (end == std::string_view::npos) throw bad("the pickle ends early");
    std::string text(take(end - at_));
    take(1);
    return text;
  }

  PickleNode* make(Kind kind) {
    PickleNode& node = tree_.nodes_.emplace_back();
    node.kind = kind, node.at = op_at_;
    return &node;
  }
  void push(const PickleNode* node) { stack_.push_back(const_cast<PickleNode*>(node)); }
  PickleNode* pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw bad("a value is wanted and none is there");
    PickleNode* node = stack_.back();
    stack_.pop_back();
    return node;
  }
  PickleNode* top() {
    PickleNode* node = pop();
    push(node);
    return node;
  }
  // What was pushed since the last mark, which goes away.
  std::vector<const PickleNode*> pop_to_mark() {
    if (marks_.empty()) throw bad("a mark is wanted and none is there");
    std::vector<const PickleNode*> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_integer(int64_t value) {
    PickleNode* node = make(Kind::integer);
    node->integer = value;
    push(node);
  }
  void push_text(Kind kind, std::string_view text) {
    PickleNode* node = make(kind);
    node->text = text;
    push(node);
  }
  void push_items(Kind kind, std::vector<const PickleNode*> items) {
    PickleNode* node = make(kind);
    node->items = std::move(items);
    push(node);
  }
  // Two's complement, little-endian, of any length.
  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) return push_text(Kind::bytes, bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80);
    if (negative && bytes.size() < sizeof value) value |= ~uint64_t{0} << (8 * bytes.size());
    push_integer(static_cast<int64_t>(value));
  }
  void push_real() {
    const auto bytes = take(8);
    uint64_t bits = 0;
    for (const char c : bytes) bits = bits << 8 | static_cast<unsigned char>(c);  // big-endian
    PickleNode* node = make(Kind::real);
    std::memcpy(&node->real, &bits, sizeof bits);
    push(node);
  }

  bool constant(unsigned char op) {
    switch (op) {
      case 0x80:  // PROTO
        if (const int version = number<uint8_t>(); version > 5)
          throw bad("protocol ", version, " is not known; up to 5 are");
        return true;
      case 0x95:  // FRAME: a hint for readers of streams
        number<uint64_t>();
        return true;
      case 'N':
        push(make(Kind::none));
        return true;
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        push(make(Kind::boolean));
        stack_.back()->integer = op == 0x88;
        return true;
      case 'J':
        push_integer(number<int32_t>());
        return true;
      case 'K':
        push_integer(number<uint8_t>());
        return true;
      case 'M':
        push_integer(number<uint16_t>());
        return true;
      case 0x8a:  // LONG1
        push_long(take(number<uint8_t>()));
        return true;
      case 0x8b: {  // LONG4
        const auto bytes = number<int32_t>();
        if (bytes < 0) throw bad("an integer of ", bytes, " bytes");
        push_long(take(static_cast<uint64_t>(bytes)));
        return true;
      }
      case 'G':
        push_real();
        return true;
      default:
        return false;
    }
  }

  bool text(unsigned char op) {
    switch (op) {
      case 'X':
        push_text(Kind::text, take(number<uint32_t>()));
        return true;
      case 0x8c:  // SHORT_BINUNICODE
        push_text(Kind::text, take(number<uint8_t>()));
        return true;
      case 0x8d:  // BINUNICODE8
        push_text(Kind::text, take(number<uint64_t>()));
        return true;
      case 'U':  // a string of Python 2
        push_text(Kind::text, take(number<uint8_t>()));
        return true;
      case 'T':
      case 'B':
        push_text(op == 'T' ? Kind::text : Kind::bytes, take(number<uint32_t>()));
        return true;
      case 'C':
        push_text(Kind::bytes, take(number<uint8_t>()));
        return true;
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        push_text(Kind::bytes, take(number<uint64_t>()));
        return true;
      default:
        return false;
    }
  }

  bool container(unsigned char op) {
    switch (op) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '0':
        pop();
        return true;
      case '1':
        pop_to_mark();
        return true;
      case '2':
        push(top());
        return true;
      case ']':
        push(make(Kind::list));
        return true;
      case ')':
        push(make(Kind::tuple));
        return true;
      case '}':
        push(make(Kind::dict));
        return true;
      case 0x8f:  // EMPTY_SET
        push(make(Kind::set));
        return true;
      case 'l':
        push_items(Kind::list, pop_to_mark());
        return true;
      case 't':
        push_items(Kind::tuple, pop_to_mark());
        return true;
      case 0x91:  // FROZENSET
        push_items(Kind::set, pop_to_mark());
        return true;
      case 'd':
        push_items(Kind::dict, pop_to_mark());
        check_pairs(top()->items);
        return true;
      case 0x85:  // TUPLE1, TUPLE2, TUPLE3
      case 0x86:
      case 0x87: {
        std::vector<const PickleNode*> items(op - 0x84u);
        for (size_t i = items.size(); i-- > 0;) items[i] = pop();
        push_items(Kind::tuple, std::move(items));
        return true;
      }
      case 'a': {
        const PickleNode* item = pop();
        append(top(), {item});
        return true;
      }
      case 'e':
      case 0x90: {  // ADDITEMS
        const auto items = pop_to_mark();
        append(top(), items);
        return true;
      }
      case 's': {
        const PickleNode* value = pop();
        const PickleNode* key = pop();
        set(top(), {key, value});
        return true;
      }
      case 'u': {
        const auto items = pop_to_mark();
        set(top(), items);
        return true;
      }
      default:
        return false;
    }
  }

  static void add(std::vector<const PickleNode*>& to, const std::vector<const PickleNode*>& items) {
    to.insert(to.end(), items.begin(), items.end());
  }
  void append(PickleNode* to, const std::vector<const PickleNode*>& items) {
    if (to->kind == Kind::call) return add(to->more, items);
    if (to->kind != Kind::list && to->kind != Kind::set) throw bad("values are added to ", described(*to));
    add(to->items, items);
  }
  void check_pairs(const std::vector<const PickleNode*>& items) const {
    if (items.size() % 2 != 0) throw bad("a key without a value");
  }
  void set(PickleNode* to, const std::vector<const PickleNode*>& items) {
    check_pairs(items);
    if (to->kind == Kind::call) return add(to->more, items);
    if (to->kind != Kind::dict) throw bad("keys are set in ", described(*to));
    add(to->items, items);
  }

  bool memo(unsigned char op) {
    switch (op) {
      case 'q':
        memo_[number<uint8_t>()] = top();
        return true;
      case 'r':
        memo_[number<uint32_t>()] = top();
        return true;
      case 0x94:  // MEMOIZE
        memo_[static_cast<uint32_t>(memo_.size())] = top();
        return true;
      case 'h':
        push(remembered(number<uint8_t>()));
        return true;
      case 'j':
        push(remembered(number<uint32_t>()));
        return true;
      default:
        return false;
    }
  }
  PickleNode* remembered(uint32_t index) const {
    const auto found = memo_.find(index);
    if (found == memo_.end()) throw bad("the value ", index, " is used and was not kept");
    return found->second;
  }

  bool object(unsigned char op) {
    switch (op) {
      case 'c': {
        const std::string module = line();
        push_text(Kind::global, module + " " + line());
        return true;
      }
      case 0x93: {  // STACK_GLOBAL
        const PickleNode* name = pop();
        const PickleNode* module = pop();
        if (name->kind != Kind::text || module->kind != Kind::text) throw bad("a class without a name");
        if (name->text.size() + module->text.size() > kMostName)
          throw bad("a class whose name has ", name->text.size() + module->text.size(), " bytes; at most ", kMostName,
                    " are read");
        push_text(Kind::global, module->text + " " + name->text);
        return true;
      }
      case 'R':     // REDUCE
      case 0x81: {  // NEWOBJ
        const PickleNode* arguments = pop();
        call(pop(), arguments);
        return true;
      }
      case 0x92: {  // NEWOBJ_EX
        const PickleNode* named = pop();
        const PickleNode* arguments = pop();
        call(pop(), arguments);
        if (named->kind == Kind::dict) stack_.back()->more = copy_of(named->items);
        return true;
      }
      case 'b': {
        const PickleNode* state = pop();
        PickleNode* node = top();
        if (node->kind == Kind::call) node->state = state;  // of a plain container: attributes that nobody reads
        return true;
      }
      case 'Q':
        push_items(Kind::persistent, {pop()});
        return true;
      default:
        return false;
    }
  }
  // Dictionaries of Python's own library are dictionaries.
  void call(const PickleNode* callee, const PickleNode* arguments) {
    if (callee->kind != Kind::global && callee->kind != Kind::call) throw bad("a call of ", described(*callee));
    if (arguments->kind != Kind::tuple) throw bad("a call with ", described(*arguments), " instead of arguments");
    const bool dict = callee->text == "collections OrderedDict" || callee->text == "collections defaultdict" ||
                      callee->text == "collections Counter";
    PickleNode* node = make(dict ? Kind::dict : Kind::call);
    if (!dict) node->callee = callee, node->items = copy_of(arguments->items);
    push(node);
  }
  // Of values that the pickle may use again and again, in a few bytes each time.
  std::vector<const PickleNode*> copy_of(const std::vector<const PickleNode*>& items) {
    copied_ += items.size();
    if (copied_ > pickle_.size()) throw bad("calls use the same arguments so often that they do not fit into memory");
    return items;
  }

  PickleTree& tree_;
  const std::string_view pickle_;
  const uint64_t where_;
  uint64_t at_ = 0, op_at_ = 0;
  uint64_t copied_ = 0;  // arguments of calls, all together
  std::vector<PickleNode*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, PickleNode*> memo_;
};

PickleTree::PickleTree(std::string_view pickle, const std::string& file, uint64_t where) : file_(file), where_(where) {
  root_ = PickleReader(*this, pickle, where).read();
}

}  // namespace drivetrain
