#include "state/safetensors_writer.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

uint64_t item_bytes(const SafetensorsItem& item, const SafetensorsDtype& dtype) {
  uint64_t bytes = static_cast<uint64_t>(dtype.bits) / 8;
  for (const int64_t size : item.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

// Items with their places in the data, in file order.
std::vector<SafetensorsEntry> lay_out(const std::string& path, const std::vector<SafetensorsItem>& items) {
  std::vector<SafetensorsEntry> entries;
  for (const SafetensorsItem& item : items) {
    const SafetensorsDtype* dtype = find_safetensors_dtype(item.dtype);
    if (!dtype) {
      throw fail(ErrorCode::internal, path, ": safetensors cannot hold tensor \"", item.name, "\" of dtype ",
                 c10::toString(item.dtype));
    }
    entries.push_back({item.name, dtype, item.shape, 0, item_bytes(item, *dtype)});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.dtype->order != b.dtype->order ? a.dtype->order > b.dtype->order : a.name < b.name;
  });
  uint64_t offset = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.begin = offset;
    offset += entry.end;
    entry.end = offset;
  }
  return entries;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<SafetensorsItem>& items,
                                     const SafetensorsMetadata& metadata)
    : path_(path) {
  const std::vector<SafetensorsEntry> entries = lay_out(path, items);
  for (const SafetensorsEntry& entry : entries) {
    if (!places_.emplace(entry.name, Place{entry}).second) {
      throw fail(ErrorCode::internal, path, ": tensor \"", entry.name, "\" is announced twice");
    }
  }
  const std::string header = safetensors_header_text(entries, metadata);
  data_offset_ = header.size();
  file_ = std::make_unique<NewFile>(path, data_offset_ + (entries.empty() ? 0 : entries.back().end));
  file_->write_at(0, header.data(), header.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::put(const std::string& name, const at::Tensor& tensor) {
  const auto found = places_.find(name);
  if (found == places_.end()) throw fail(ErrorCode::internal, path_, ": tensor \"", name, "\" was not announced");
  auto& [entry, written] = found->second;
  if (tensor.scalar_type() != entry.dtype->torch || tensor.sizes() != at::IntArrayRef(entry.shape)) {
    throw fail(ErrorCode::internal, path_, ": tensor \"", name, "\" was announced as ", entry.dtype->name, " ",
               at::IntArrayRef(entry.shape), " and came as ", c10::toString(tensor.scalar_type()), " ", tensor.sizes());
  }
  if (written) throw fail(ErrorCode::internal, path_, ": tensor \"", name, "\" came twice");
  const at::Tensor bytes = tensor.detach().cpu().contiguous();
  file_->write_at(data_offset_ + entry.begin, bytes.const_data_ptr(), entry.end - entry.begin);
  written = true;
}

void SafetensorsWriter::finish() {
  for (const auto& [name, place] : places_) {
    if (!place.written) throw fail(ErrorCode::internal, path_, ": tensor \"", name, "\" never came");
  }
  file_->commit();
}

}  // namespace drivetrain
