#include <algorithm>
#include <map>
#include <optional>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "dcp.h"

namespace drivetrain::dcp {
namespace {

using Kind = PickleNode::Kind;
using Sizes = std::vector<int64_t>;

constexpr uint64_t kMostMetadata = uint64_t{512} << 20;

// A name of a file in the folder: data files lie beside the metadata.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(folder), made_(std::make_shared<TorchCheckpoint>(folder)) {
    const std::string path = folder + "/" + kMetadata;
    const InputFile file(path);
    if (file.bytes() > kMostMetadata)
      throw bad_file(path, 0, "has ", file.bytes(), " bytes; at most ", kMostMetadata, " are read");
    std::string text(file.bytes(), '\0');
    file.read(0, text.data(), text.size());
    tree_ = std::make_unique<const PickleTree>(text, path);
  }

  std::shared_ptr<const Checkpoint> read() {
    read_paths();
    read_tensors();
    for (const auto& [index, info] : tree_->pairs(tree_->at(tree_->root(), "storage_data"), "storage_data"))
      read_item(*index, *info);
    Value& facts = made_->set_facts();
    facts.set("format", "PyTorch distributed checkpoint"), facts.set("naming", "hf");
    facts.set("step", std::max(step_, updates_)), facts.set("updates", updates_ ? updates_ : step_);
    facts.set("notes", Value::array());
    made_->finish();
    return made_;
  }

 private:
  // By full name: what the runtime calls it.
  void read_paths() {
    const PickleNode* planner = tree_->find(tree_->root(), "planner_data");
    if (!planner || planner->kind != Kind::dict) return;
    for (const auto& [key, path] : tree_->pairs(*planner, "planner_data")) {
      if (key->kind != Kind::text || path->kind != Kind::tuple) continue;
      std::vector<std::string> words;
      for (const PickleNode* word : path->items)
        words.push_back(word->kind == Kind::text ? word->text : concat(word->integer));
      paths_[key->text] = std::move(words);
    }
  }

  std::string our_name(const std::string& name) const {
    const auto path = paths_.find(name);
    return name_of_path(path == paths_.end() ? std::vector<std::string>{name} : path->second);
  }

  void read_tensors() {
    const PickleNode& list = tree_->at(tree_->root(), "state_dict_metadata");
    for (const auto& [key, value] : tree_->pairs(list, "state_dict_metadata")) {
      const std::string& name = tree_->text(*key, "a tensor's name");
      const PickleNode* size = tree_->find(*value, "size");
      if (!size) continue;  // bytes
      if (our_name(name).empty()) continue;
      const Sizes shape = tree_->integers(*size, "a tensor's size");
      shapes_[name] = shape;
      made_->add(our_name(name), shape, at::kFloat);
    }
  }

  void read_item(const PickleNode& index, const PickleNode& info) {
    const std::string& name = tree_->text(tree_->at(index, "fqn"), "fqn");
    const std::string& file_name = tree_->text(tree_->at(info, "relative_path"), "relative_path");
    if (!is_plain_name(file_name))
      throw tree_->wrong(info, "\"", file_name.substr(0, 200), "\" has to be the name of a file in this folder");
    const PickleNode* transforms = tree_->find(info, "transform_descriptors");
    if (transforms && transforms->kind == Kind::list && !transforms->items.empty())
      throw tree_->wrong(info, "\"", name, "\" is stored with transforms (compressed, or as safetensors), which ",
                         "is not supported");
    const int64_t offset = tree_->integer(tree_->at(info, "offset"), "offset"),
                  length = tree_->integer(tree_->at(info, "length"), "length");
    const auto shape = shapes_.find(name);
    const bool number = shape == shapes_.end();
    if (number && !is_step(name)) return;
    const auto file = open(file_name);
    if (offset < 0 || length < 0 || static_cast<uint64_t>(offset) > file->bytes() ||
        static_cast<uint64_t>(length) > file->bytes() - static_cast<uint64_t>(offset))
      throw tree_->wrong(info, "\"", name, "\" lies at ", offset, " with ", length, " bytes; ", file_name, " has ",
                         file->bytes());
    const auto archive =
        std::make_shared<const TorchFile>(file, static_cast<uint64_t>(offset), static_cast<uint64_t>(length));
    if (number) return note_step(name, archive->number(archive->root(), name));
    const TorchTensor tensor = archive->tensor(archive->root(), name);
    const PickleNode* at = tree_->find(index, "offset");
    const Sizes offsets = at && at->kind != Kind::none ? tree_->integers(*at, "offset") : Sizes(tensor.shape.size(), 0);
    if (offsets.size() != shape->second.size() || tensor.shape.size() != offsets.size())
      throw tree_->wrong(index, "a part of \"", name, "\" has ", offsets.size(), " dimensions, the tensor has ",
                         shape->second.size());
    for (size_t i = 0; i < offsets.size(); ++i)
      if (offsets[i] < 0 || offsets[i] > shape->second[i] || tensor.shape[i] > shape->second[i] - offsets[i])
        throw tree_->wrong(index, "a part of \"", name, "\" lies outside of it");
    for (const ChunkBox& part : boxes_of_chunk(shape->second, offsets, tensor.shape))
      made_->add_box(our_name(name), part.box, archive, tensor, part.first);
  }

  // Numbers of steps: of the whole, or of the optimizer for one parameter.
  bool is_step(const std::string& name) const {
    const auto path = paths_.find(name);
    const std::string last = path == paths_.end() || path->second.empty() ? name : path->second.back();
    return last == "step" || last == "iteration";
  }
  void note_step(const std::string& name, double value) {
    const auto path = paths_.find(name);
    const bool whole = path == paths_.end() || path->second.size() <= 2;
    int64_t& count = whole ? step_ : updates_;
    count = std::max(count, static_cast<int64_t>(value));
  }

  std::shared_ptr<const InputFile> open(const std::string& name) {
    auto& file = files_[name];
    try {
      if (!file) file = std::make_shared<const InputFile>(folder_ + "/" + name);
    } catch (const Error& e) {  // the metadata says that it is there
      throw fail(e.code() == ErrorCode::config ? ErrorCode::checkpoint : e.code(), e.what());
    }
    return file;
  }

  const std::string folder_;
  const std::shared_ptr<TorchCheckpoint> made_;
  std::unique_ptr<const PickleTree> tree_;
  std::map<std::string, std::vector<std::string>> paths_;
  std::map<std::string, Sizes> shapes_;
  std::map<std::string, std::shared_ptr<const InputFile>> files_;
  int64_t step_ = 0, updates_ = 0;
};

}  // namespace

std::string name_of_path(const std::vector<std::string>& path) {
  const auto state = std::find(path.begin(), path.end(), "state");
  const bool optimizer = std::any_of(path.begin(), state, [](const std::string& word) {
    return word == "optimizer" || word == "optim" || word == "optimizers";
  });
  if (optimizer) {
    if (path.end() - state < 3 || path.back() == "step") return {};
    return "optimizer/" + *(state + 1) + "." + path.back();
  }
  size_t first = 0;
  const auto outer = [](const std::string& word) {
    return word == "app" || word == "model" || word == "module" || word == "state_dict";
  };
  while (first + 1 < path.size() && outer(path[first])) ++first;
  if (path.empty() || path[first] == "step" || path[first] == "iteration") return {};
  std::string name = "model/";
  for (size_t i = first; i < path.size(); ++i) name += (i > first ? "." : "") + path[i];
  return name;
}

std::vector<ChunkBox> boxes_of_chunk(const Sizes& shape, const Sizes& offsets, const Sizes& sizes) {
  if (shape.empty()) return {{{0, 0, 1, 1}, 0}};
  // All dimensions behind `cut` are whole: from there on elements follow each other.
  size_t cut = shape.size() - 1;
  while (cut > 0 && offsets[cut] == 0 && sizes[cut] == shape[cut]) --cut;
  int64_t run = 1, width = 1, inner = 1;
  for (size_t i = std::max<size_t>(cut, 1); i < shape.size(); ++i) run *= sizes[i];
  for (size_t i = 1; i < shape.size(); ++i) width *= sizes[i];
  for (size_t i = cut + 1; i < shape.size(); ++i) inner *= shape[i];
  if (cut == 0) return {{{offsets[0], 0, sizes[0], width}, 0}};
  const int64_t runs = run == 0 ? 0 : width / run;
  std::vector<ChunkBox> boxes;
  for (int64_t r = 0; r < runs; ++r) {
    int64_t column = offsets[cut] * inner, stride = inner * shape[cut], left = r;
    for (size_t i = cut; i-- > 1;) {
      column += (offsets[i] + left % sizes[i]) * stride;
      left /= sizes[i], stride *= shape[i];
    }
    if (runs == 1) return {{{offsets[0], column, sizes[0], run}, 0}};
    for (int64_t row = 0; row < sizes[0]; ++row)
      boxes.push_back({{offsets[0] + row, column, 1, run}, row * width + r * run});
  }
  return boxes;
}

std::shared_ptr<const Checkpoint> read_folder(const std::string& folder) { return Reader(folder).read(); }

}  // namespace drivetrain::dcp
