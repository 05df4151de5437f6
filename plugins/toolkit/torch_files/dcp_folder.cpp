#include <drivetrain/toolkit/torch_files/dcp_folder.h>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

using Kind = PickleNode::Kind;

constexpr uint64_t kMostMetadata = uint64_t{512} << 20;

// A name of a file in the folder: data files lie beside the metadata.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

}  // namespace

DcpFolder::DcpFolder(const std::string& folder) : folder_(folder) {
  const std::string path = folder + "/" + kMetadata;
  const StoredFile file(path);
  if (file.bytes() > kMostMetadata)
    throw bad_file(path, 0, "has ", file.bytes(), " bytes; at most ", kMostMetadata, " are read");
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  tree_ = std::make_unique<const PickleTree>(text, path);
  read_paths();
  read_shapes();
}

void DcpFolder::read_paths() {
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

void DcpFolder::read_shapes() {
  const PickleNode& list = tree_->at(tree_->root(), "state_dict_metadata");
  for (const auto& [key, value] : tree_->pairs(list, "state_dict_metadata")) {
    const std::string& name = tree_->text(*key, "a tensor's name");
    if (const PickleNode* size = tree_->find(*value, "size"))  // else bytes
      shapes_[name] = tree_->integers(*size, "a tensor's size");
  }
}

std::vector<std::string> DcpFolder::path(const std::string& name) const {
  const auto path = paths_.find(name);
  return path == paths_.end() ? std::vector<std::string>{name} : path->second;
}

void DcpFolder::each_item(const std::function<bool(const std::string&)>& wanted,
                          const std::function<void(const Item&)>& use) const {
  for (const auto& [index, info] : tree_->pairs(tree_->at(tree_->root(), "storage_data"), "storage_data")) {
    const std::string& name = tree_->text(tree_->at(*index, "fqn"), "fqn");
    if (wanted(name)) use(open_item(*index, *info, name));
  }
}

DcpFolder::Item DcpFolder::open_item(const PickleNode& index, const PickleNode& info, const std::string& name) const {
  const std::string& file_name = tree_->text(tree_->at(info, "relative_path"), "relative_path");
  if (!is_plain_name(file_name))
    throw tree_->wrong(info, "\"", file_name.substr(0, 200), "\" has to be the name of a file in this folder");
  const PickleNode* transforms = tree_->find(info, "transform_descriptors");
  if (transforms && transforms->kind == Kind::list && !transforms->items.empty())
    throw tree_->wrong(info, "\"", name, "\" is stored with transforms (compressed, or as safetensors), which ",
                       "is not supported");
  const int64_t offset = tree_->integer(tree_->at(info, "offset"), "offset"),
                length = tree_->integer(tree_->at(info, "length"), "length");
  const auto file = open_file(file_name);
  if (offset < 0 || length < 0 || static_cast<uint64_t>(offset) > file->bytes() ||
      static_cast<uint64_t>(length) > file->bytes() - static_cast<uint64_t>(offset))
    throw tree_->wrong(info, "\"", name, "\" lies at ", offset, " with ", length, " bytes; ", file_name, " has ",
                       file->bytes());
  Item item{name, nullptr, shapes_.count(name) > 0};
  item.file = std::make_shared<const TorchFile>(file, static_cast<uint64_t>(offset), static_cast<uint64_t>(length));
  if (item.tensor) read_part(index, item);
  return item;
}

void DcpFolder::read_part(const PickleNode& index, Item& item) const {
  item.values = item.file->tensor(item.file->root(), item.name);
  const Sizes &whole = shapes_.at(item.name), &sizes = item.values.shape;
  const PickleNode* at = tree_->find(index, "offset");
  item.offsets = at && at->kind != Kind::none ? tree_->integers(*at, "offset") : Sizes(sizes.size(), 0);
  if (item.offsets.size() != whole.size() || sizes.size() != whole.size())
    throw tree_->wrong(index, "a part of \"", item.name, "\" has ", item.offsets.size(), " dimensions, the tensor has ",
                       whole.size());
  for (size_t i = 0; i < whole.size(); ++i)
    if (item.offsets[i] < 0 || item.offsets[i] > whole[i] || sizes[i] > whole[i] - item.offsets[i])
      throw tree_->wrong(index, "a part of \"", item.name, "\" lies outside of it");
}

std::shared_ptr<const StoredFile> DcpFolder::open_file(const std::string& name) const {
  auto& file = files_[name];
  try {
    if (!file) file = std::make_shared<const StoredFile>(folder_ + "/" + name);
  } catch (const Error& e) {  // the metadata says that it is there
    throw fail(e.code() == ErrorCode::config ? ErrorCode::checkpoint : e.code(), e.what(),
               "\n   bring the files of all ranks into this folder");
  }
  return file;
}

std::vector<ChunkBox> boxes_of_chunk(const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets,
                                     const std::vector<int64_t>& sizes) {
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

}  // namespace drivetrain
