#include "blob_manifest.h"

#include <cstdint>
#include <string_view>

#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/toolkit/files/safetensors_dtype.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::blobs {
namespace {

constexpr const char* kForm = "drivetrain blobs 1";

Value integers(const std::vector<int64_t>& list) {
  Value value = Value::array();
  for (const int64_t number : list) value.items().push_back(number);
  return value;
}

std::vector<int64_t> read_integers(const Value& value) {
  std::vector<int64_t> list;
  for (const Value& number : value.items()) list.push_back(number.as_int());
  return list;
}

const Value& member(const Value& object, const char* name) {
  const Value* const found = object.find(name);
  if (!found) throw fail(ErrorCode::checkpoint, "\"", name, "\" is missing");
  return *found;
}

}  // namespace

// Every changed byte changes it: each step of the hash can be undone.
std::string digest_text(const void* data, uint64_t bytes) {
  const uint64_t hash = hash_name(std::string_view(static_cast<const char*>(data), bytes));
  return formatted("%016llx", static_cast<unsigned long long>(hash));
}

Value slice_value(const StateSlice& slice, const std::string& blob) {
  const SafetensorsDtype* const dtype = find_safetensors_dtype(slice.data.scalar_type());
  if (!dtype)
    throw fail(ErrorCode::checkpoint, slice.name, ": there is no name for the dtype ",
               c10::toString(slice.data.scalar_type()));
  const auto bytes = static_cast<uint64_t>(slice.data.nbytes());
  return Value::Object{{"name", slice.name},
                       {"shape", integers(slice.shape)},
                       {"dtype", dtype->name},
                       {"box", integers({slice.box.row, slice.box.column, slice.box.rows, slice.box.columns})},
                       {"blob", blob},
                       {"bytes", static_cast<int64_t>(bytes)},
                       {"digest", digest_text(slice.data.const_data_ptr(), bytes)}};
}

std::set<std::string> Manifest::names() const {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors)
    for (const BlobSlice& slice : tensor.slices) names.insert(slice.blob);
  return names;
}

// The first line is the digest of all others.
std::string Manifest::text(int64_t step, double saved_at, const Value& facts, const std::vector<Value>& parts) {
  Value slices = Value::array();
  for (const Value& part : parts)
    for (const Value& slice : part.items()) slices.items().push_back(slice);
  const std::string body =
      Value(
          Value::Object{
              {"form", kForm}, {"step", step}, {"saved_at", saved_at}, {"facts", facts}, {"slices", std::move(slices)}})
          .to_json(1);
  return digest_text(body.data(), body.size()) + "\n" + body;
}

Manifest Manifest::read(const Blob& blob, const std::string& where) {
  const auto damaged = [&](const std::string& what) {
    return fail(ErrorCode::checkpoint, where, ": ", what,
                "\n   copy this checkpoint again from a place where it is whole, or use another one");
  };
  constexpr size_t kHead = 17;  // digest and line feed
  if (blob.bytes() < kHead || blob.bytes() > uint64_t{1} << 31) throw damaged("is no manifest");
  std::string text(blob.bytes(), '\0');
  blob.read(text.data());
  const std::string body = text.substr(kHead);
  if (text.compare(0, kHead, digest_text(body.data(), body.size()) + "\n") != 0)
    throw damaged("is damaged: its digest is another");
  try {
    const Value root = parse_json(body, where);
    if (member(root, "form").as_string() != kForm)
      throw damaged("is of another form: " + member(root, "form").as_string());
    Manifest made;
    made.step = member(root, "step").as_int(), made.saved_at = member(root, "saved_at").as_double();
    made.facts = member(root, "facts");
    for (const Value& slice : member(root, "slices").items()) {
      const SafetensorsDtype* const dtype = find_safetensors_dtype(member(slice, "dtype").as_string());
      if (!dtype) throw damaged("has an unknown dtype");
      BlobTensor& tensor = made.tensors[member(slice, "name").as_string()];
      tensor.shape = read_integers(member(slice, "shape")), tensor.dtype = dtype->torch;
      const std::vector<int64_t> box = read_integers(member(slice, "box"));
      if (box.size() != 4) throw damaged("has a box without four numbers");
      tensor.slices.push_back({member(slice, "blob").as_string(),
                               member(slice, "digest").as_string(),
                               {box[0], box[1], box[2], box[3]},
                               static_cast<uint64_t>(member(slice, "bytes").as_int())});
      made.bytes += tensor.slices.back().bytes, made.blobs += tensor.slices.back().bytes > 0 ? 1 : 0;
    }
    made.bytes += blob.bytes();
    return made;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::config) throw damaged(e.what());
    throw;
  }
}

}  // namespace drivetrain::blobs
