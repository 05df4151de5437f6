// A disk under a page cache, beside the real files: what would be there after a power cut.
//
// Every call is done and recorded. A file has what was on the disk at its last fsync and the changes since; a folder
// has every list of names since its last fsync. A cut keeps any changes of each file, writes torn into blocks of 512
// bytes, and of each folder one of the lists: renames in a folder keep their order, those of two folders do not.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "test_calls.h"

namespace drivetrain::test {

class TestDisk : public TestCalls {
 public:
  using Names = std::map<std::string, size_t>;
  struct Change {
    uint64_t offset = 0;
    std::string bytes;
    bool resize = false;  // to `offset` bytes
  };
  struct Node {
    explicit Node(bool is_folder) : folder(is_folder) {}
    bool folder;
    std::vector<Names> names{{}};  // of a folder: the first is on the disk, the last is what programs see
    std::string content;           // of a file, on the disk
    std::vector<Change> changes;   // since
  };
  using Nodes = std::vector<Node>;

  explicit TestDisk(const std::string& root) : root_(root) { nodes_.emplace_back(true); }

  // What a cut at this moment may leave.
  enum class Keeps { nothing, everything, something };
  Nodes cut(Keeps keeps, std::mt19937& random) const {
    Nodes left = nodes_;
    const auto kept = [&] { return keeps == Keeps::everything || (keeps == Keeps::something && random() % 2 == 0); };
    for (Node& node : left) {
      const size_t lists = node.names.size();
      const size_t at = keeps == Keeps::nothing ? 0 : keeps == Keeps::everything ? lists - 1 : random() % lists;
      node.names = {Names(node.names[at])};
      for (const Change& change : node.changes) apply(node.content, change, kept);
      node.changes.clear();
    }
    return left;
  }
  static void put(const Nodes& nodes, const std::string& path, size_t number = 0) {
    const Node& node = nodes[number];
    if (!node.folder) {
      std::ofstream(path, std::ios::binary) << node.content;
      return;
    }
    std::filesystem::create_directories(path);
    for (const auto& [name, inner] : node.names.back()) put(nodes, path + "/" + name, inner);
  }

  std::function<void()> after_call = [] {};

  int open(const std::string& path, int flags, unsigned mode) override {
    const int descriptor = TestCalls::open(path, flags, mode);
    if (descriptor < 0 || !path.starts_with(root_)) return descriptor;  // above it, nothing is looked at
    if ((flags & O_CREAT) && !names(path).contains(name_of(path))) {
      nodes_.emplace_back(false);
      change(path, [&](Names& list) { list[name_of(path)] = nodes_.size() - 1; });
    }
    open_[descriptor] = find(path);
    if (flags & O_TRUNC) nodes_[find(path)].changes.push_back({0, "", true});
    return after_call(), descriptor;
  }
  int close(int descriptor) override {
    open_.erase(descriptor);
    return TestCalls::close(descriptor);
  }
  int64_t pwrite(int descriptor, const void* data, size_t bytes, uint64_t offset) override {
    const int64_t done = TestCalls::pwrite(descriptor, data, bytes, offset);
    nodes_[open_.at(descriptor)].changes.push_back({offset, std::string(static_cast<const char*>(data), bytes)});
    return after_call(), done;
  }
  int reserve(int descriptor, uint64_t bytes) override {
    nodes_[open_.at(descriptor)].changes.push_back({bytes, "", true});
    return after_call(), TestCalls::reserve(descriptor, bytes);
  }
  int fsync(int descriptor) override {
    after_call();
    if (!open_.contains(descriptor)) return 0;
    Node& node = nodes_[open_.at(descriptor)];
    node.names = {Names(node.names.back())};
    for (const Change& change : node.changes) apply(node.content, change, [] { return true; });
    node.changes.clear();
    return after_call(), 0;
  }
  int make_folder(const std::string& path, unsigned mode) override {
    const int done = TestCalls::make_folder(path, mode);
    if (done != 0) return done;
    nodes_.emplace_back(true);
    change(path, [&](Names& list) { list[name_of(path)] = nodes_.size() - 1; });
    return after_call(), done;
  }
  int remove_folder(const std::string& path) override { return gone(path, TestCalls::remove_folder(path)); }
  int remove_file(const std::string& path) override { return gone(path, TestCalls::remove_file(path)); }
  int rename(const std::string& from, const std::string& to) override {
    const int done = TestCalls::rename(from, to);
    if (done != 0) return done;
    change(from, [&](Names& list) { list[name_of(to)] = list.at(name_of(from)), list.erase(name_of(from)); });
    return after_call(), 0;
  }
  int exchange(const std::string& one, const std::string& other) override {
    const int done = TestCalls::exchange(one, other);
    if (done != 0) return done;
    change(one, [&](Names& list) { std::swap(list.at(name_of(one)), list.at(name_of(other))); });
    return after_call(), 0;
  }

 private:
  template <class Kept>
  static void apply(std::string& content, const Change& change, const Kept& kept) {
    if (change.resize) {
      if (kept()) content.resize(change.offset);
      return;
    }
    for (size_t at = 0; at < change.bytes.size(); at += 512) {
      if (!kept()) continue;
      const std::string block = change.bytes.substr(at, 512);
      const size_t end = change.offset + at + block.size();
      if (content.size() < end) content.resize(end);
      content.replace(change.offset + at, block.size(), block);
    }
  }
  static std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }
  size_t find(const std::string& path) const {
    size_t node = 0;
    for (const auto& part : std::filesystem::path(path).lexically_relative(root_))
      if (part != ".") node = nodes_[node].names.back().at(part.string());
    return node;
  }
  Names& names(const std::string& path) {
    return nodes_[find(std::filesystem::path(path).parent_path().string())].names.back();
  }
  template <class Edit>
  void change(const std::string& path, const Edit& edit) {
    std::vector<Names>& lists = nodes_[find(std::filesystem::path(path).parent_path().string())].names;
    lists.push_back(Names(lists.back()));
    edit(lists.back());
  }
  int gone(const std::string& path, int done) {
    if (done != 0) return done;
    change(path, [&](Names& list) { list.erase(name_of(path)); });
    return after_call(), 0;
  }

  const std::string root_;
  Nodes nodes_;
  std::map<int, size_t> open_;
};

}  // namespace drivetrain::test
