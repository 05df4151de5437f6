#include "index_file.h"

#include <algorithm>
#include <cstring>

namespace drivetrain::megatron {
namespace {

constexpr char kMagic[] = "MMIDIDX\0";    // nine bytes with the zero behind
constexpr char kOldMagic[] = "TNTIDX\0";  // of the formats "lazy" and "cached" before it
constexpr int64_t kSearchBlock = 512;     // entries that a search reads at once in the end
constexpr int64_t kTops = 1024;
constexpr int64_t kMost = int64_t{1} << 56;  // sequences: no file has more, and 20 times it is an int64

}  // namespace

int64_t bytes_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
      return 4;
    case TokenType::int64:
      return 8;
  }
  return 0;
}

const char* name_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return "uint8";
    case TokenType::int8:
      return "int8";
    case TokenType::int16:
      return "int16";
    case TokenType::uint16:
      return "uint16";
    case TokenType::int32:
      return "int32";
    case TokenType::int64:
      return "int64";
  }
  return "?";
}

template <class... Parts>
Error IndexFile::wrong(int64_t byte, const Parts&... parts) const {
  return fail(ErrorCode::io, "dataset/megatron: ", file_.path(), ": at byte ", byte, ": ", parts...,
              "\n   the file is damaged or of another kind: copy or prepare it again");
}

template <class T>
T IndexFile::entry(int64_t table, int64_t i) const {
  T value;
  file_.read(table + i * static_cast<int64_t>(sizeof(T)), &value, sizeof value);
  return value;
}

IndexFile::IndexFile(const std::string& path) : file_(path), tops_(new std::atomic<int64_t>[kTops]) {
  for (int64_t i = 0; i < kTops; ++i) tops_[static_cast<size_t>(i)] = -1;
  check_header();
  check_ends();
}

void IndexFile::check_header() {
  char head[kHeader] = {};
  const int64_t there = std::min<int64_t>(file_.bytes(), kHeader);
  file_.read(0, head, there);
  if (std::memcmp(head, kOldMagic, sizeof kOldMagic) == 0)
    throw wrong(0,
                "this is the old index \"TNTIDX\" of the formats lazy and cached, which is not read; prepare the data "
                "again in Megatron's format mmap");
  if (std::memcmp(head, kMagic, sizeof kMagic) != 0) throw wrong(0, "an index begins with MMIDIDX and two zeros");
  if (there < kHeader) throw wrong(there, "the file ends within its header of ", kHeader, " bytes");
  uint64_t version, sequences, entries;
  std::memcpy(&version, head + 9, 8);
  std::memcpy(&sequences, head + 18, 8);
  std::memcpy(&entries, head + 26, 8);
  if (version != 1) throw wrong(9, "version is ", version, ", known is 1");
  const int code = static_cast<unsigned char>(head[17]);
  if (code == 6 || code == 7) throw wrong(17, "the type is a float (code ", code, "), which cannot be token ids");
  if (code < 1 || code > 8)
    throw wrong(17, "the type has the code ", code, "; known are 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16");
  type_ = static_cast<TokenType>(code);
  if (sequences > kMost || entries > kMost)
    throw wrong(18, sequences, " sequences and ", entries, " document entries are more than a file can have");
  if (sequences == 0 || entries < 2)
    throw wrong(18, "the set is empty: ", sequences, " sequences, ", entries, " document entries");
  sequences_ = static_cast<int64_t>(sequences), documents_ = static_cast<int64_t>(entries) - 1;
  const int64_t wanted = documents_at() + 8 * (documents_ + 1);
  if (file_.bytes() != wanted && file_.bytes() != wanted + sequences_)
    throw wrong(18, sequences, " sequences and ", entries, " document entries take ", wanted, " bytes; the file has ",
                file_.bytes());
}

void IndexFile::check_ends() {
  const auto first = entry<int64_t>(documents_at(), 0), last = entry<int64_t>(documents_at(), documents_);
  if (first != 0) throw wrong(documents_at(), "the first document begins with sequence ", first, ", not with 0");
  if (last != sequences_)
    throw wrong(documents_at() + 8 * documents_, "the documents end at sequence ", last, ", but there are ",
                sequences_);
  const auto begin = entry<int64_t>(pointers_at(), sequences_ - 1);
  const int64_t bytes = length(sequences_ - 1) * bytes_of(type_);
  if (begin < 0 || begin > INT64_MAX - bytes)
    throw wrong(pointers_at() + 8 * (sequences_ - 1), "the last sequence begins at byte ", begin, " of the .bin file");
  end_ = begin + bytes;
}

int64_t IndexFile::length(int64_t sequence) const {
  const auto value = entry<int32_t>(kHeader, sequence);
  if (value < 0) throw wrong(kHeader + 4 * sequence, "sequence ", sequence, " has the length ", value);
  return value;
}

std::vector<int32_t> IndexFile::lengths(int64_t first, int64_t count) const {
  std::vector<int32_t> values(static_cast<size_t>(count));
  file_.read(kHeader + 4 * first, values.data(), 4 * count);
  const auto negative = std::find_if(values.begin(), values.end(), [](int32_t v) { return v < 0; });
  if (negative != values.end()) length(first + (negative - values.begin()));  // throws
  return values;
}

int64_t IndexFile::pointer(int64_t sequence) const {
  if (sequence == sequences_) return end_;
  const auto value = entry<int64_t>(pointers_at(), sequence);
  if (value < 0 || value > end_)
    throw wrong(pointers_at() + 8 * sequence, "sequence ", sequence, " begins at byte ", value,
                " of the .bin file, beyond the last one's end at ", end_);
  return value;
}

int64_t IndexFile::first_sequence(int64_t document) const {
  const auto value = entry<int64_t>(documents_at(), document);
  if (value < 0 || value > sequences_)
    throw wrong(documents_at() + 8 * document, "document ", document, " begins with sequence ", value, " of ",
                sequences_);
  return value;
}

std::vector<int64_t> IndexFile::first_sequences(int64_t document, int64_t count) const {
  std::vector<int64_t> values(static_cast<size_t>(count));
  file_.read(documents_at() + 8 * document, values.data(), 8 * count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = values[static_cast<size_t>(i)];
    if (value < 0 || value > sequences_ || (i > 0 && value < values[static_cast<size_t>(i) - 1]))
      throw wrong(documents_at() + 8 * (document + i), "document ", document + i, " begins with sequence ", value,
                  " of ", sequences_,
                  i > 0 ? concat(", the one before it with ", values[static_cast<size_t>(i) - 1]) : "");
  }
  return values;
}

void IndexFile::replace_by_pointers(std::vector<int64_t>& sequences) const {
  const int64_t first = sequences.front(), last = std::min(sequences.back(), sequences_ - 1);
  if (last - first > 8 * static_cast<int64_t>(sequences.size()) || last < first) {  // they lie far apart
    for (int64_t& sequence : sequences) sequence = pointer(sequence);
    return;
  }
  std::vector<int64_t> pointers(static_cast<size_t>(last - first + 1));
  file_.read(pointers_at() + 8 * first, pointers.data(), 8 * (last - first + 1));
  for (int64_t& sequence : sequences) {
    const int64_t value = sequence == sequences_ ? end_ : pointers[static_cast<size_t>(sequence - first)];
    if (value < 0 || value > end_) pointer(sequence);  // throws
    sequence = value;
  }
}

// The i of [0, count) with at(i) <= wanted < at(i + 1), which is there if at(0) <= wanted < at(count). In a table that
// does not ascend it is one of several: whoever uses the entry checks it against its neighbour.
template <class At>
int64_t IndexFile::last_up_to(int64_t wanted, int64_t count, int64_t table, const At& at) const {
  int64_t low = 0, high = count;
  for (int64_t node = 1; high - low > kSearchBlock;) {
    const int64_t middle = low + (high - low) / 2;
    const bool right = at(middle, node) <= wanted;
    (right ? low : high) = middle;
    node = node >= kTops ? node : 2 * node + right;
  }
  int64_t block[kSearchBlock];
  file_.read(table + 8 * low, block, 8 * (high - low));
  const int64_t first = low;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (block[middle - first] <= wanted ? low : high) = middle;
  }
  return low;
}

int64_t IndexFile::sequence_at(int64_t byte) const {
  return last_up_to(byte, sequences_, pointers_at(), [&](int64_t i, int64_t node) {
    if (node >= kTops) return pointer(i);
    std::atomic<int64_t>& top = tops_[static_cast<size_t>(node)];
    int64_t value = top.load(std::memory_order_relaxed);
    if (value < 0) top.store(value = pointer(i), std::memory_order_relaxed);
    return value;
  });
}

int64_t IndexFile::document_of(int64_t sequence) const {
  return last_up_to(sequence, documents_, documents_at(), [&](int64_t i, int64_t) { return first_sequence(i); });
}

void IndexFile::check_adjacent(int64_t first_byte, int64_t last_byte) const {
  const int64_t size = bytes_of(type_);
  int64_t pointers[kSearchBlock + 1];
  int32_t sizes[kSearchBlock];
  for (int64_t i = sequence_at(first_byte); i < sequences_;) {
    const int64_t count = std::min(kSearchBlock, sequences_ - i), entries = std::min(count + 1, sequences_ - i);
    file_.read(pointers_at() + 8 * i, pointers, 8 * entries);
    file_.read(kHeader + 4 * i, sizes, 4 * count);
    if (entries == count) pointers[count] = end_;
    for (int64_t j = 0; j < count; ++j) {
      if (pointers[j] > last_byte) return;
      if (sizes[j] >= 0 && pointers[j + 1] - pointers[j] == sizes[j] * size) continue;
      throw wrong(pointers_at() + 8 * (i + j), "sequence ", i + j, " has ", sizes[j], " tokens of ", size,
                  " bytes from byte ", pointers[j], " of the .bin file on, and the next begins at byte ",
                  pointers[j + 1],
                  ". \"order\": \"counter\" reads sequences that lie one after another; \"order\": "
                  "\"megatron\" reads others, too");
    }
    i += count;
  }
}

}  // namespace drivetrain::megatron
