#include "rank_writer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <tuple>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/files/safetensors_dtype.h>

#include "boxes.h"
#include "chunked_file.h"
#include "layout.h"

namespace drivetrain::sharded {
namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr size_t kLengthBytes = 8;

void check_slice(const StateSlice& slice) {
  const auto refuse = [&](const auto&... parts) {
    throw fail(ErrorCode::internal, "checkpoint_store/sharded: slice of \"", slice.name, "\": ", parts...);
  };
  const auto whole = whole_box(slice.shape);
  if (!whole || !contains(*whole, slice.box))
    refuse(box_text(slice.box), " are not inside of the tensor of shape ", at::IntArrayRef(slice.shape));
  if (!slice.data.defined() || !slice.data.device().is_cpu() || !slice.data.is_contiguous() ||
      slice.data.sizes() != at::IntArrayRef({slice.box.rows, slice.box.columns}))
    refuse("its data are no contiguous [", slice.box.rows, ", ", slice.box.columns, "] on the CPU");
  if (!find_safetensors_dtype(slice.data.scalar_type()))
    refuse("safetensors cannot hold ", dtype_name(slice.data.scalar_type()), " elements");
}

// Slices in the order of the file: wide dtypes first, then by name and place.
std::vector<size_t> file_order(const std::vector<StateSlice>& slices) {
  std::vector<size_t> order(slices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) {
    const StateSlice& s = slices[i];
    return std::tuple<int, const std::string&, int64_t, int64_t>(-find_safetensors_dtype(s.data.scalar_type())->order,
                                                                 s.name, s.box.row, s.box.column);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

Value entry_of(const FileSlice& slice) {
  const auto offset = [](uint64_t bytes) { return Value(static_cast<int64_t>(bytes)); };
  Value value = Value::object();
  value.set("dtype", find_safetensors_dtype(slice.dtype)->name);
  value.set("shape", Value(Value::Array{slice.box.rows, slice.box.columns}));
  value.set("data_offsets", Value(Value::Array{offset(slice.begin), offset(slice.end)}));
  return value;
}

// The first bytes of the file: length, JSON, and spaces up to where the data may begin. Offsets count from there.
std::string header_of(const RankIndex& index) {
  Value metadata = index.identity.to_value();
  for (Value::Member& member : metadata.members())  // safetensors has only texts there
    if (!member.value.is_string()) member.value = Value(member.value.to_json());
  Value::Object members{{kMetadata, metadata}};
  std::set<std::string> names;
  for (const FileSlice& slice : index.slices) {
    if (area(slice.box) == 0) continue;  // stands in the index alone
    const std::string name = concat(slice.name, "@", slice.box.row, ",", slice.box.column);
    if (!names.insert(name).second)
      throw fail(ErrorCode::internal, "checkpoint_store/sharded: the slice ", name, " is there twice");
    members.push_back({name, entry_of(slice)});
  }
  std::string json = Value(std::move(members)).to_json();
  const size_t over = (kLengthBytes + json.size()) % kAlignment;
  if (over != 0) json.append(kAlignment - over, ' ');
  const uint64_t length = json.size();
  std::string text(kLengthBytes, '\0');
  std::memcpy(text.data(), &length, kLengthBytes);
  return text + json;
}

// The slices with their offsets in the data; the header moves them by its size.
RankIndex index_of(const Snapshot& snapshot, const std::vector<size_t>& order) {
  RankIndex index;
  index.identity = {snapshot.tag, snapshot.step, snapshot.rank, snapshot.world_size, random_id()};
  for (const size_t i : order) {
    const StateSlice& slice = snapshot.slices[i];
    const uint64_t begin = index.bytes;
    index.bytes += slice.data.nbytes();
    index.slices.push_back({slice.name, slice.shape, slice.data.scalar_type(), slice.box, begin, index.bytes});
  }
  return index;
}

}  // namespace

RankFiles write_rank(FileCalls& calls, const std::string& folder, uint64_t chunk_bytes, Snapshot& snapshot) {
  for (const StateSlice& slice : snapshot.slices) check_slice(slice);
  const std::vector<size_t> order = file_order(snapshot.slices);
  RankIndex index = index_of(snapshot, order);
  const std::string header = header_of(index);
  index.bytes += header.size(), index.chunk_bytes = chunk_bytes;
  for (FileSlice& slice : index.slices) slice.begin += header.size(), slice.end += header.size();

  ChunkedFile file(calls, folder + "/" + data_name(snapshot.rank), index.bytes, chunk_bytes);
  file.append(header.data(), header.size());
  for (const size_t i : order) {
    at::Tensor& data = snapshot.slices[i].data;
    file.append(data.const_data_ptr(), data.nbytes());
    data.reset();
  }
  index.chunks = file.finish();
  const std::string text = index_text(index), path = folder + "/" + index_name(snapshot.rank);
  read_index(path, text);  // a save that could not be read back is an error now, not when it is needed
  write_durable_file(calls, path, text);
  sync_folder(calls, folder);
  return {index.identity, index.bytes, text.size(), digest_of(text)};
}

SaveIdentity identity_in_header(const std::string& head) {
  uint64_t length = 0;
  if (head.size() >= kLengthBytes) std::memcpy(&length, head.data(), kLengthBytes);
  if (length == 0 || length > head.size() - kLengthBytes) throw fail(ErrorCode::config, "there is no header");
  Value metadata = member_of(parse_json(head.substr(kLengthBytes, length), "header"), kMetadata);
  for (const char* number : {"step", "rank", "world_size"})
    metadata.set(number, parse_json(member_of(metadata, number).as_string(), "header"));
  return SaveIdentity::from(metadata);
}

}  // namespace drivetrain::sharded
