#include <drivetrain/toolkit/torch_files/torch_file.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <optional>

#include <drivetrain/toolkit/text.h>

#include "dtypes.h"

namespace drivetrain {
namespace {

using Kind = PickleNode::Kind;
using torch_files::DtypeName;
using torch_files::kDtypes;
constexpr uint64_t kMostPickle = uint64_t{256} << 20;
constexpr int64_t kMostElements = int64_t{1} << 48;

bool is_parameter(const std::string& function) {
  return function == "torch._utils _rebuild_parameter" || function == "torch._utils _rebuild_parameter_with_state";
}
bool is_plain(const std::string& function) {
  return function == "torch._utils _rebuild_tensor_v2" || function == "torch._utils _rebuild_tensor_v3" ||
         function == "torch._utils _rebuild_tensor";
}
constexpr const char* kOfType = "torch._tensor _rebuild_from_type_v2";

// a * b; nothing if that is more than any tensor has.
std::optional<int64_t> product(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > kMostElements) return std::nullopt;
  return result;
}

}  // namespace

int64_t TorchTensor::numel() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

bool TorchTensor::contiguous() const {
  int64_t wanted = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != wanted) return false;
    wanted *= shape[i];
  }
  return true;
}

std::shared_ptr<const TorchFile> TorchFile::open(const std::string& path) {
  const auto file = std::make_shared<const StoredFile>(path);
  return std::make_shared<const TorchFile>(file, 0, file->bytes());
}

TorchFile::TorchFile(std::shared_ptr<const StoredFile> file, uint64_t begin, uint64_t bytes)
    : archive_(file, begin, bytes > file->bytes() ? file->bytes() + 1 : begin + bytes) {
  constexpr std::string_view kPickle = "data.pkl";
  const ZipRecord* pickle = nullptr;
  for (const auto& [name, record] : archive_.records()) {
    const bool here = name == kPickle || (name.ends_with("/data.pkl") && name.find('/') == name.size() - 9);
    if (!here) continue;
    if (pickle) throw bad_file(path(), begin, "holds two pickles, ", pickle->name, " and ", name);
    pickle = &record;
    prefix_ = name.substr(0, name.size() - kPickle.size());
  }
  if (!pickle) throw bad_file(path(), begin, "is a zip archive without data.pkl: it was not written by torch.save");
  if (const ZipRecord* order = archive_.find(prefix_ + "byteorder"))
    if (const std::string text = archive_.text(*order, 16); text != "little")
      throw bad_file(path(), order->header, "holds numbers in byte order \"", text, "\"; only little is read");
  const std::string text = archive_.text(*pickle, kMostPickle);
  tree_ = std::make_unique<const PickleTree>(text, path());
}

bool TorchFile::is_tensor(const PickleNode& node) {
  if (node.kind != Kind::call || node.callee->kind != Kind::global) return false;
  const std::string& function = node.callee->text;
  return is_plain(function) || is_parameter(function) || function == kOfType;
}

TorchTensor TorchFile::tensor(const PickleNode& node, std::string_view what) const {
  const PickleNode* found = &node;
  for (int depth = 0; depth < 4 && is_tensor(*found); ++depth) {
    const std::string& function = found->callee->text;
    if (is_plain(function)) return rebuilt(*found, function, found->items);
    if (found->items.empty()) break;
    if (function == kOfType) {  // function, class, arguments, state
      const bool known = found->items.size() >= 3 && is_plain(found->items[0]->text);
      if (!known) break;
      return rebuilt(*found, found->items[0]->text, tree_->list(*found->items[2], what));
    }
    found = found->items[0];
  }
  throw tree_->wrong(node, what, " has to be a tensor; found ", described(node));
}

TorchFile::Storage TorchFile::storage(const PickleNode& node) const {
  if (node.kind != Kind::persistent) throw tree_->wrong(node, "a tensor's storage is ", described(node));
  const auto& parts = tree_->list(*node.items.at(0), "a storage");
  if (parts.size() < 5 || tree_->text(*parts[0], "a storage") != "storage" || parts[1]->kind != Kind::global)
    throw tree_->wrong(node, "a storage is described in a way that is not known");
  Storage storage;
  const std::string& name = parts[1]->text;
  bool known = name == "torch.storage UntypedStorage" || name == "torch UntypedStorage";
  if (known) storage.typed = false, storage.dtype = at::kByte;
  for (const DtypeName& row : kDtypes)
    if (*row.storage && name == concat("torch ", row.storage)) storage.dtype = row.type, known = true;
  if (!known) throw tree_->wrong(*parts[1], "storages of ", name, " are not read");
  const std::string record = concat(prefix_, "data/", tree_->text(*parts[2], "a storage's key"));
  storage.record = archive_.find(record);
  if (!storage.record) throw tree_->wrong(node, "record \"", record, "\" is not in the archive");
  return storage;
}

TorchTensor TorchFile::rebuilt(const PickleNode& node, const std::string& function,
                               const std::vector<const PickleNode*>& arguments) const {
  if (arguments.size() < 4) throw tree_->wrong(node, "a tensor is described by ", arguments.size(), " values");
  const Storage from = storage(*arguments[0]);
  TorchTensor tensor;
  tensor.dtype = from.dtype, tensor.data = from.record;
  if (!from.typed) {
    const bool named = function == "torch._utils _rebuild_tensor_v3" && arguments.size() >= 7;
    bool known = false;
    for (const DtypeName& row : kDtypes)
      if (named && arguments[6]->text == concat("torch ", row.dtype)) tensor.dtype = row.type, known = true;
    if (!known) throw tree_->wrong(node, "a tensor of ", named ? described(*arguments[6]) : "no dtype", " is not read");
  }
  tensor.offset = tree_->integer(*arguments[1], "a tensor's offset");
  tensor.shape = tree_->integers(*arguments[2], "a tensor's shape");
  tensor.strides = tree_->integers(*arguments[3], "a tensor's strides");
  check_inside(node, tensor);
  return tensor;
}

void TorchFile::check_inside(const PickleNode& node, const TorchTensor& tensor) const {
  const auto fail_with = [&](const char* what) {
    return tree_->wrong(node, "a tensor of shape ", at::IntArrayRef(tensor.shape), ", strides ",
                        at::IntArrayRef(tensor.strides), " and offset ", tensor.offset, " ", what);
  };
  if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > 32 || tensor.offset < 0)
    throw fail_with("cannot be");
  std::optional<int64_t> count = 1;  // a size of 0 counts as 1: those beside it are multiplied elsewhere
  bool empty = false;
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] < 0 || tensor.strides[i] < 0) throw fail_with("cannot be");
    if (count) count = product(*count, std::max<int64_t>(tensor.shape[i], 1));
    empty = empty || tensor.shape[i] == 0;
    const auto reach = product(std::max<int64_t>(tensor.shape[i] - 1, 0), tensor.strides[i]);
    if (!reach || last > kMostElements) throw fail_with("has too many elements");
    last += *reach;
  }
  if (!count) throw fail_with("has too many elements");
  if (empty) return;
  const uint64_t item = c10::elementSize(tensor.dtype);
  if (static_cast<uint64_t>(last) >= tensor.data->bytes / item) throw fail_with("does not lie in its storage");
  // A stride of 0 would let a small file ask for any amount of memory.
  if (static_cast<uint64_t>(*count) > tensor.data->bytes / item) throw fail_with("has more elements than its storage");
}

double TorchFile::number(const PickleNode& node, std::string_view what) const {
  if (!is_tensor(node)) return tree_->real(node, what);
  const TorchTensor found = tensor(node, what);
  if (found.numel() != 1) throw tree_->wrong(node, what, " has to be one number; found a tensor of ", found.numel());
  return read(found).to(at::kDouble).item<double>();
}

at::Tensor TorchFile::read(const TorchTensor& tensor, int64_t first, int64_t count) const {
  const auto options = at::TensorOptions().dtype(tensor.dtype);
  const uint64_t item = c10::elementSize(tensor.dtype);
  const auto fetch = [&](int64_t from, int64_t elements) {
    at::Tensor values = at::empty({elements}, options);
    archive_.read(*tensor.data, static_cast<uint64_t>(from) * item, values.mutable_data_ptr(),
                  static_cast<uint64_t>(elements) * item);
    return values;
  };
  if (count == 0) return at::empty({0}, options);
  if (tensor.contiguous()) return fetch(tensor.offset + first, count);
  int64_t span = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) span += (tensor.shape[i] - 1) * tensor.strides[i];
  const at::Tensor view = fetch(tensor.offset, span).as_strided(tensor.shape, tensor.strides);
  return view.reshape({-1}).narrow(0, first, count).clone();
}

at::Tensor TorchFile::read(const TorchTensor& tensor) const {
  return read(tensor, 0, tensor.numel()).view(tensor.shape);
}

std::vector<std::string> TorchFile::verify() const {
  std::vector<std::string> problems;
  for (const auto& [name, record] : archive_.records()) {
    try {
      archive_.check(record);
    } catch (const Error& e) {
      problems.push_back(first_line(e.what()));
    }
  }
  return problems;
}

}  // namespace drivetrain
