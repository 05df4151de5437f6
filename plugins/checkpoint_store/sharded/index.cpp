#include "index.h"

#include <sys/random.h>

#include <cerrno>

#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/files/safetensors_dtype.h>

#include "boxes.h"
#include "layout.h"
#include "signed_json.h"

namespace drivetrain::sharded {
namespace {

constexpr const char* kFormat = "drivetrain-sharded-index";

Value list_of(const std::vector<int64_t>& numbers) {
  Value::Array list(numbers.begin(), numbers.end());
  return Value(std::move(list));
}

Value slice_value(const FileSlice& slice) {
  Value value = Value::object();
  value.set("tensor", slice.name);
  value.set("shape", list_of(slice.shape));
  value.set("dtype", find_safetensors_dtype(slice.dtype)->name);
  value.set("box", list_of({slice.box.row, slice.box.column, slice.box.rows, slice.box.columns}));
  value.set("bytes", list_of({static_cast<int64_t>(slice.begin), static_cast<int64_t>(slice.end)}));
  return value;
}

std::vector<int64_t> numbers_of(const Value& value, const std::string& key, size_t count) {
  std::vector<int64_t> numbers;
  for (const Value& item : member_of(value, key).items()) numbers.push_back(item.as_int());
  if (count != 0 && numbers.size() != count)
    throw fail(ErrorCode::config, "\"", key, "\" has ", numbers.size(), " numbers instead of ", count);
  for (const int64_t n : numbers)
    if (n < 0) throw fail(ErrorCode::config, "\"", key, "\" has the negative number ", n);
  return numbers;
}

void check_place(const FileSlice& slice, const RankIndex& index) {
  const auto refuse = [&](const auto&... parts) {
    throw fail(ErrorCode::config, "tensor \"", slice.name, "\": ", parts...);
  };
  const auto whole = whole_box(slice.shape);
  if (!whole) refuse("its number of elements overflows 64 bits");
  if (!contains(*whole, slice.box)) refuse(box_text(slice.box), " are not inside of it");
  if (slice.begin > slice.end || slice.end > index.bytes)
    refuse("bytes ", slice.begin, " to ", slice.end, " are not inside of the file of ", index.bytes);
  const uint64_t width = c10::elementSize(slice.dtype);
  if (slice.end - slice.begin != static_cast<uint64_t>(area(slice.box)) * width)
    refuse(slice.end - slice.begin, " bytes cannot be ", area(slice.box), " elements of ", width, " bytes");
  if (slice.begin % width != 0) refuse("begins at byte ", slice.begin, ", which is no multiple of ", width);
}

FileSlice slice_from(const Value& value, const RankIndex& index) {
  FileSlice slice;
  slice.name = member_of(value, "tensor").as_string();
  slice.shape = numbers_of(value, "shape", 0);
  const std::string& dtype = member_of(value, "dtype").as_string();
  const SafetensorsDtype* const known = find_safetensors_dtype(dtype);
  if (!known || known->torch == at::ScalarType::Undefined)
    throw fail(ErrorCode::config, "tensor \"", slice.name, "\": unknown dtype \"", dtype, "\"");
  slice.dtype = known->torch;
  const auto box = numbers_of(value, "box", 4), bytes = numbers_of(value, "bytes", 2);
  slice.box = {box[0], box[1], box[2], box[3]};
  slice.begin = static_cast<uint64_t>(bytes[0]), slice.end = static_cast<uint64_t>(bytes[1]);
  check_place(slice, index);
  return slice;
}

void read_chunks(const Value& value, RankIndex& index) {
  index.bytes = static_cast<uint64_t>(number_of(value, "bytes", 0));
  index.chunk_bytes = static_cast<uint64_t>(number_of(value, "chunk_bytes", 8));
  if (index.chunk_bytes > (uint64_t{1} << 30) || index.chunk_bytes % 8 != 0)
    throw fail(ErrorCode::config, "\"chunk_bytes\" is ", index.chunk_bytes);
  for (const Value& item : member_of(value, "chunks").items()) {
    const auto digest = read_digest(item.as_string());
    if (!digest) throw fail(ErrorCode::config, "\"", item.as_string(), "\" is no digest");
    index.chunks.push_back(*digest);
  }
  const uint64_t wanted = (index.bytes + index.chunk_bytes - 1) / index.chunk_bytes;
  if (index.chunks.size() != wanted)
    throw fail(ErrorCode::config, "there are ", index.chunks.size(), " digests for ", wanted, " chunks");
}

}  // namespace

const Value& member_of(const Value& value, const std::string& key) {
  const Value* const found = value.find(key);
  if (!found) throw fail(ErrorCode::config, "\"", key, "\" is missing");
  return *found;
}

int64_t number_of(const Value& value, const std::string& key, int64_t least) {
  const int64_t number = member_of(value, key).as_int();
  if (number < least) throw fail(ErrorCode::config, "\"", key, "\" is ", number);
  return number;
}

Value SaveIdentity::to_value() const {
  Value value = Value::object();
  value.set("tag", tag), value.set("step", step), value.set("rank", rank), value.set("world_size", world_size);
  value.set("save", save);
  return value;
}

SaveIdentity SaveIdentity::from(const Value& value) {
  SaveIdentity identity;
  identity.tag = member_of(value, "tag").as_string();
  identity.step = number_of(value, "step", 0);
  identity.rank = number_of(value, "rank", 0);
  identity.world_size = number_of(value, "world_size", 1);
  identity.save = member_of(value, "save").as_string();
  return identity;
}

std::string SaveIdentity::text() const {
  return concat("rank ", rank, " of ", world_size, ", tag ", tag, " (step ", step, "), save ", save.substr(0, 32));
}

std::string index_text(const RankIndex& index) {
  Value value = Value::object();
  value.set("format", kFormat), value.set("version", kVersion);
  const Value identity = index.identity.to_value();
  for (const Value::Member& member : identity.members()) value.set(member.key, member.value);
  value.set("file", data_name(index.identity.rank));
  value.set("bytes", static_cast<int64_t>(index.bytes));
  value.set("chunk_bytes", static_cast<int64_t>(index.chunk_bytes));
  Value::Array chunks, slices;
  for (const Digest& digest : index.chunks) chunks.emplace_back(digest.text());
  for (const FileSlice& slice : index.slices) slices.push_back(slice_value(slice));
  value.set("chunks", Value(std::move(chunks))), value.set("slices", Value(std::move(slices)));
  return signed_json(value);
}

RankIndex read_index(const std::string& path, const std::string& text) {
  const Value value = read_signed_json(path, text, kFormat);
  try {
    RankIndex index;
    index.identity = SaveIdentity::from(value);
    read_chunks(value, index);
    for (const Value& item : member_of(value, "slices").items()) index.slices.push_back(slice_from(item, index));
    return index;
  } catch (const Error& e) {
    throw damaged(path, "is not as this version writes it: ", e.what());
  }
}

std::string random_id() {
  uint64_t numbers[2] = {};
  if (::getrandom(numbers, sizeof numbers, 0) != sizeof numbers) throw file_error("getrandom", "draw a number", errno);
  return Digest{numbers[0], numbers[1]}.text();
}

}  // namespace drivetrain::sharded
