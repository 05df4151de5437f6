#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include <cstring>
#include <filesystem>

#include <drivetrain/toolkit/torch_files/zip_archive.h>

#include "dtypes.h"

namespace drivetrain {
namespace {

constexpr uint64_t kAlignment = 64, kFull = 0xffffffff;

template <class T>
void put(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof value);
}

}  // namespace

// Names differ from those of pickle_reader.cpp: both are parts of one unity file.
class PickleWriter {
 public:
  explicit PickleWriter(std::vector<at::Tensor>* storages) : storages_(storages) {}

  std::string write(const TorchValue& root) {
    text_ = "\x80\x02";
    value(root);
    text_ += '.';
    return std::move(text_);
  }

 private:
  using Kind = TorchValue::Kind;

  void integer(int64_t number) {
    if (number >= 0 && number < 256) {
      text_ += 'K';
      put(text_, static_cast<uint8_t>(number));
    } else if (number == static_cast<int32_t>(number)) {
      text_ += 'J';
      put(text_, static_cast<int32_t>(number));
    } else {
      text_ += "\x8a\x08";
      put(text_, number);
    }
  }
  void text(const std::string& words) {
    text_ += 'X';
    put(text_, static_cast<uint32_t>(words.size()));
    text_ += words;
  }
  void real(double number) {
    text_ += 'G';
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    for (int shift = 56; shift >= 0; shift -= 8) text_ += static_cast<char>(bits >> shift & 255);
  }
  void tuple(const TorchValue::List& items, size_t first) {
    text_ += '(';
    for (size_t i = first; i < items.size(); ++i) value(items[i]);
    text_ += 't';
  }

  void value(const TorchValue& v) {
    switch (v.kind_) {
      case Kind::none:
        text_ += 'N';
        break;
      case Kind::boolean:
        text_ += v.integer_ ? '\x88' : '\x89';
        break;
      case Kind::integer:
        integer(v.integer_);
        break;
      case Kind::real:
        real(v.real_);
        break;
      case Kind::text:
        text(v.text_);
        break;
      case Kind::list:
        text_ += "](";
        for (const TorchValue& item : v.items_) value(item);
        text_ += 'e';
        break;
      case Kind::tuple:
        tuple(v.items_, 0);
        break;
      case Kind::dict:
        text_ += "}(";
        for (const TorchValue& item : v.items_) value(item);
        text_ += 'u';
        break;
      case Kind::global:
        text_ += 'c' + v.text_;
        break;
      case Kind::call:
        value(v.items_[0]);
        tuple(v.items_, 1);
        text_ += 'R';
        break;
      case Kind::object:
        value(v.items_[0]);
        text_ += ")\x81";
        value(v.items_[1]);
        text_ += 'b';
        break;
      case Kind::tensor:
        tensor(v.tensor_);
        break;
    }
  }

  void tensor(const at::Tensor& t) {
    if (!storages_) throw fail(ErrorCode::internal, "a tensor in a pickle that has no archive");
    if (!t.is_contiguous()) throw fail(ErrorCode::internal, "a tensor to be saved is not contiguous");
    text_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    text("storage");
    text_ += concat("ctorch\n", torch_storage_name(t.scalar_type()), "\n");
    text(std::to_string(storages_->size()));
    text("cpu");
    integer(t.numel());
    text_ += "tQ";
    integer(0);
    for (const at::IntArrayRef list : {t.sizes(), t.strides()}) {
      text_ += '(';
      for (const int64_t number : list) integer(number);
      text_ += 't';
    }
    text_ += "\x89";                              // requires_grad
    text_ += "ccollections\nOrderedDict\n(tRtR";  // hooks, none
    storages_->push_back(t);
  }

  std::vector<at::Tensor>* storages_;
  std::string text_;
};

TorchValue TorchValue::dict(std::vector<std::pair<TorchValue, TorchValue>> members) {
  List items;
  for (auto& [key, value] : members) items.push_back(std::move(key)), items.push_back(std::move(value));
  return {Kind::dict, std::move(items)};
}

TorchValue TorchValue::global(const std::string& module, const std::string& name) {
  TorchValue value(Kind::global, {});
  value.text_ = module + "\n" + name + "\n";
  return value;
}

TorchValue TorchValue::call(TorchValue callee, List arguments) {
  arguments.insert(arguments.begin(), std::move(callee));
  return {Kind::call, std::move(arguments)};
}

TorchValue TorchValue::object(TorchValue of, TorchValue state) {
  return {Kind::object, {std::move(of), std::move(state)}};
}

TorchValue TorchValue::size(const std::vector<int64_t>& shape) {
  List sizes(shape.begin(), shape.end());
  return call(global("torch", "Size"), {tuple(std::move(sizes))});
}

std::string pickle_of(const TorchValue& value) { return PickleWriter(nullptr).write(value); }

TorchArchive::TorchArchive(const std::string& name, const TorchValue& root) {
  std::vector<at::Tensor> storages;
  records_.push_back({name + "/data.pkl", PickleWriter(&storages).write(root), {}});
  records_.push_back({name + "/.format_version", "1", {}});
  records_.push_back({name + "/byteorder", "little", {}});
  for (size_t i = 0; i < storages.size(); ++i) records_.push_back({concat(name, "/data/", i), "", storages[i]});
  records_.push_back({name + "/version", "3\n", {}});
  uint64_t at = 0;
  for (Record& record : records_) {
    record.bytes = record.tensor.defined() ? record.tensor.nbytes() : record.text.size();
    record.header = at;
    // A field of at least four bytes fills up to the beginning of the data.
    const uint64_t least = at + 30 + record.name.size() + (record.bytes >= kFull ? 20 : 0) + 4;
    record.data = (least + kAlignment - 1) / kAlignment * kAlignment;
    at = record.data + record.bytes;
  }
  directory_ = at;
  bytes_ = at + directory(std::vector<uint32_t>(records_.size())).size();
}

std::string TorchArchive::local_header(const Record& record, uint32_t crc) const {
  const bool wide = record.bytes >= kFull;
  const auto size = static_cast<uint32_t>(std::min(record.bytes, kFull));
  const uint64_t extra = record.data - record.header - 30 - record.name.size();
  std::string text;
  put<uint32_t>(text, 0x04034b50);
  put<uint16_t>(text, wide ? 45 : 20), put<uint16_t>(text, 0x0800);  // names are UTF-8
  put<uint16_t>(text, 0), put<uint32_t>(text, 0x00210000);           // stored; 1980-01-01
  put<uint32_t>(text, crc), put(text, size), put(text, size);
  put(text, static_cast<uint16_t>(record.name.size())), put(text, static_cast<uint16_t>(extra));
  text += record.name;
  if (wide) {
    put<uint16_t>(text, 1), put<uint16_t>(text, 16), put(text, record.bytes), put(text, record.bytes);
  }
  const uint64_t filling = extra - (wide ? 20 : 0) - 4;
  text += "FB";
  put(text, static_cast<uint16_t>(filling));
  text.append(filling, 'Z');
  return text;
}

std::string TorchArchive::directory(const std::vector<uint32_t>& crcs) const {
  std::string text;
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    const bool wide = record.bytes >= kFull, far = record.header >= kFull;
    const auto size = static_cast<uint32_t>(std::min(record.bytes, kFull));
    std::string extra;
    if (wide) put(extra, record.bytes), put(extra, record.bytes);
    if (far) put(extra, record.header);
    put<uint32_t>(text, 0x02014b50);
    put<uint16_t>(text, 45), put<uint16_t>(text, wide || far ? 45 : 20), put<uint16_t>(text, 0x0800);
    put<uint16_t>(text, 0), put<uint32_t>(text, 0x00210000);
    put<uint32_t>(text, crcs[i]), put(text, size), put(text, size);
    put(text, static_cast<uint16_t>(record.name.size()));
    put(text, static_cast<uint16_t>(extra.empty() ? 0 : extra.size() + 4));
    text.append(10, '\0');  // comment, disk, attributes
    put(text, static_cast<uint32_t>(std::min(record.header, kFull)));
    text += record.name;
    if (!extra.empty()) put<uint16_t>(text, 1), put(text, static_cast<uint16_t>(extra.size()));
    text += extra;
  }
  const uint64_t count = records_.size(), size = text.size();
  const bool wide = count >= 0xffff || directory_ >= kFull || size >= kFull;
  if (wide) {
    put<uint32_t>(text, 0x06064b50), put<uint64_t>(text, 44), put<uint16_t>(text, 45), put<uint16_t>(text, 45);
    put<uint32_t>(text, 0), put<uint32_t>(text, 0), put(text, count), put(text, count), put(text, size);
    put(text, directory_);
    put<uint32_t>(text, 0x07064b50), put<uint32_t>(text, 0), put(text, directory_ + size), put<uint32_t>(text, 1);
  }
  put<uint32_t>(text, 0x06054b50), put<uint32_t>(text, 0);
  const auto few = static_cast<uint16_t>(std::min<uint64_t>(count, 0xffff));
  put(text, few), put(text, few);
  put(text, static_cast<uint32_t>(wide ? kFull : size)), put(text, static_cast<uint32_t>(wide ? kFull : directory_));
  put<uint16_t>(text, 0);
  return text;
}

void TorchArchive::write(OutputFile& file, uint64_t offset) const {
  std::vector<uint32_t> crcs;
  for (const Record& record : records_) {
    const void* data = record.tensor.defined() ? record.tensor.const_data_ptr() : record.text.data();
    crcs.push_back(crc32(0, data, record.bytes));
    const std::string header = local_header(record, crcs.back());
    file.write_at(offset + record.header, header.data(), header.size());
    file.write_at(offset + record.data, data, record.bytes);
  }
  const std::string text = directory(crcs);
  file.write_at(offset + directory_, text.data(), text.size());
}

void write_torch_file(const std::string& path, const TorchValue& root) {
  const TorchArchive archive(std::filesystem::path(path).stem().string(), root);
  OutputFile file(system_file_calls(), path, archive.bytes());
  archive.write(file, 0);
  file.finish();
}

std::string torch_storage_name(at::ScalarType dtype) {
  for (const auto& row : torch_files::kDtypes)
    if (row.type == dtype && *row.storage) return row.storage;
  throw fail(ErrorCode::checkpoint, "tensors of ", c10::toString(dtype), " cannot be written as PyTorch's");
}

std::string torch_dtype_name(at::ScalarType dtype) {
  for (const auto& row : torch_files::kDtypes)
    if (row.type == dtype) return row.dtype;
  throw fail(ErrorCode::checkpoint, "tensors of ", c10::toString(dtype), " cannot be written as PyTorch's");
}

}  // namespace drivetrain
