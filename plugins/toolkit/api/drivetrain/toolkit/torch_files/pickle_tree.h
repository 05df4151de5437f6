// A pickle as a tree of plain data. Nothing is executed and no class is known: a class or function is its name, and a
// call of it is a node that keeps what was called, the arguments and the state. Whoever wants a value of a class reads
// that node; a node that nobody reads does no harm.
//
// Source: Python's pickletools.py, protocols 0 to 5. Of the opcodes of protocol 0 only those are known that newer
// pickles have too. Memory: at most 320 bytes per byte of the pickle. Value nodes are owned by the tree.
// Thread: const calls from any thread. Errors: Error(checkpoint) naming file and byte.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {

struct PickleNode {
  enum class Kind : uint8_t {
    none,
    boolean,     // integer is 0 or 1
    integer,     // one that does not fit 64 bits is `bytes`
    real,        //
    text,        // UTF-8 as it stands in the file
    bytes,       //
    list,        // items
    tuple,       // items
    set,         // items
    dict,        // items: key, value, key, value, ...
    global,      // text: "module name", of a class or function
    call,        // callee and items, the arguments
    persistent,  // items has the one value by which the writer names something outside of the pickle
  };
  Kind kind = Kind::none;
  uint64_t at = 0;  // byte of the pickle
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<const PickleNode*> items;
  const PickleNode* callee = nullptr;   // of a call
  const PickleNode* state = nullptr;    // of a call: what __setstate__ would be given
  std::vector<const PickleNode*> more;  // of a call: what was appended to it, or set in it as key, value
};

class PickleTree {
 public:
  // `file`: for messages. `where`: the place of the pickle in it. Error also if bytes follow the end of the pickle.
  PickleTree(std::string_view pickle, const std::string& file, uint64_t where = 0);

  const PickleNode& root() const { return *root_; }
  const std::string& file() const { return file_; }

  // Of a dict, or of an object whose attributes are such: null if there is no such key.
  const PickleNode* find(const PickleNode& node, std::string_view key) const;
  // These throw if the key is not there, or a value is of another kind. `what` names the value in the message.
  const PickleNode& at(const PickleNode& node, std::string_view key) const;
  int64_t integer(const PickleNode& node, std::string_view what) const;  // a boolean counts as 0 or 1
  double real(const PickleNode& node, std::string_view what) const;      // or an integer
  const std::string& text(const PickleNode& node, std::string_view what) const;
  // Elements of a list, a tuple, or a subclass of tuple that is called with one (torch.Size).
  const std::vector<const PickleNode*>& list(const PickleNode& node, std::string_view what) const;
  std::vector<int64_t> integers(const PickleNode& node, std::string_view what) const;
  // Keys and values of a dict, in order.
  std::vector<std::pair<const PickleNode*, const PickleNode*>> pairs(const PickleNode& node,
                                                                     std::string_view what) const;
  template <class... Parts>
  [[nodiscard]] Error wrong(const PickleNode& node, const Parts&... parts) const {
    return fail(ErrorCode::checkpoint, file_, ": at byte ", where_ + node.at, " of its pickle: ", parts...);
  }

 private:
  friend class PickleReader;
  const std::string file_;
  const uint64_t where_;
  std::deque<PickleNode> nodes_;
  const PickleNode* root_ = nullptr;
};

// "a list", "an object of class torch.Size": for messages.
std::string described(const PickleNode& node);

}  // namespace drivetrain
