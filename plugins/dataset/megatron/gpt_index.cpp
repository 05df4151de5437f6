#include "gpt_index.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>

#include "legacy_random.h"

namespace drivetrain::megatron {
namespace {

constexpr int64_t kMostNarrow = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostUnsigned = std::numeric_limits<uint32_t>::max();

// All sequences `epochs` times, in one shuffle.
void append_shuffled(const Range& range, int64_t epochs, LegacyRandom& random, std::vector<int32_t>& documents) {
  const auto before = static_cast<int64_t>(documents.size());
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (int64_t i = range.first; i < range.end; ++i) documents.push_back(static_cast<int32_t>(i));
  random.shuffle(documents.data() + before, epochs * range.count());
}

std::vector<int32_t> shuffled_documents(const Range& range, const GptShape& shape, LegacyRandom& random) {
  std::vector<int32_t> documents;
  documents.reserve(static_cast<size_t>(shape.epochs * range.count()));
  append_shuffled(range, shape.last_apart ? shape.epochs - 1 : shape.epochs, random, documents);
  if (shape.last_apart) append_shuffled(range, 1, random, documents);
  return documents;
}

// Place in `documents` and token within of each sample's first token, and of the one behind the last sample.
template <class T>
std::vector<T> cut_samples(const std::vector<int32_t>& documents, const std::vector<int32_t>& lengths,
                           const Range& range, const GptShape& shape) {
  std::vector<T> places = {0, 0};
  places.reserve(static_cast<size_t>(2 * (shape.samples + 1)));
  size_t at = 0;
  int64_t offset = 0;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    // The last of its tokens is the next one's first, so a sample may end with a document's last token.
    int64_t left = shape.seq_length;
    for (;;) {
      const int64_t length = lengths[static_cast<size_t>(documents[at] - range.first)] - offset;
      if (length > left) break;
      left -= length, offset = 0, ++at;
    }
    offset += left;
    places.push_back(static_cast<T>(at)), places.push_back(static_cast<T>(offset));
  }
  return places;
}

template <class T>
std::vector<T> shuffled_samples(const GptShape& shape, LegacyRandom& random) {
  std::vector<T> samples(static_cast<size_t>(shape.samples));
  std::iota(samples.begin(), samples.end(), T{0});
  const int64_t first = shape.last_apart ? shape.before : shape.samples;
  random.shuffle(samples.data(), first);
  random.shuffle(samples.data() + first, shape.samples - first);
  return samples;
}

void check_size(const Range& range, const GptShape& shape) {
  if (range.end > kMostNarrow)
    throw fail(ErrorCode::config, "dataset/megatron: \"order\": \"megatron\" counts sequences in 32 bits, there are ",
               range.end, "\n   \"order\": \"counter\" takes any number");
  const double needed = 4.0 * static_cast<double>(shape.epochs) * static_cast<double>(range.count()) +
                        16.0 * static_cast<double>(shape.samples) + 8.0 * static_cast<double>(shape.samples);
  const double host = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed < host) return;
  throw fail(ErrorCode::config, "dataset/megatron: the index of \"order\": \"megatron\" takes up to ", needed / 1e9,
             " GB for ", shape.epochs, " epochs of ", range.count(), " sequences and ", shape.samples,
             " samples; this host has ", host / 1e9, " GB\n   \"order\": \"counter\" needs no index");
}

}  // namespace

GptShape gpt_shape(int64_t tokens, int64_t seq_length, std::optional<int64_t> asked) {
  GptShape shape;
  shape.tokens = tokens, shape.seq_length = seq_length;
  if (static_cast<double>(asked.value_or(0)) * static_cast<double>(seq_length) > 4e18)
    throw fail(ErrorCode::config, "dataset/megatron: ", *asked, " samples of ", seq_length,
               " tokens are asked for, which is more than can be counted");
  if (asked) shape.epochs = std::max<int64_t>(1, (*asked * seq_length + tokens) / tokens);
  shape.samples = (shape.epochs * tokens - 1) / seq_length;
  if (shape.epochs == 1) return shape;
  shape.before = ((shape.epochs - 1) * tokens - 1) / seq_length;
  const int64_t last = *asked - shape.before, per_epoch = (tokens - 1) / seq_length;
  shape.last_apart = last < static_cast<int64_t>(0.80 * static_cast<double>(per_epoch));
  return shape;
}

GptIndex GptIndex::build(const std::vector<int32_t>& lengths, const Range& range, const GptShape& shape,
                         uint32_t seed) {
  check_size(range, shape);
  LegacyRandom random(seed);
  GptIndex index;
  index.range_ = range;
  std::vector<int32_t> documents = shuffled_documents(range, shape, random);
  if (static_cast<int64_t>(documents.size()) <= kMostNarrow)
    index.samples_ = IntArray(cut_samples<int32_t>(documents, lengths, range, shape));
  else
    index.samples_ = IntArray(cut_samples<int64_t>(documents, lengths, range, shape));
  index.documents_ = IntArray(std::move(documents));
  index.shuffle_ = shape.samples < kMostUnsigned - 1 ? IntArray(shuffled_samples<uint32_t>(shape, random))
                                                     : IntArray(shuffled_samples<int64_t>(shape, random));
  return index;
}

std::optional<GptIndex> GptIndex::load(const std::string& base, const Range& range, const GptShape& shape) {
  std::error_code unknown;
  for (const char* const name : {"-document_index.npy", "-sample_index.npy", "-shuffle_index.npy"})
    if (!std::filesystem::is_regular_file(base + name, unknown)) return std::nullopt;
  GptIndex index;
  index.range_ = range;
  index.documents_ = IntArray(base + "-document_index.npy");
  index.samples_ = IntArray(base + "-sample_index.npy");
  index.shuffle_ = IntArray(base + "-shuffle_index.npy");
  const auto documents = static_cast<double>(shape.epochs) * static_cast<double>(range.count());
  const bool fits = static_cast<double>(index.documents_.count()) == documents &&
                    index.samples_.count() == 2 * (shape.samples + 1) && index.shuffle_.count() == shape.samples;
  return fits ? std::optional(std::move(index)) : std::nullopt;
}

void GptIndex::write(const std::string& base) const {
  documents_.write(base + "-document_index.npy", 0);
  samples_.write(base + "-sample_index.npy", 2);
  shuffle_.write(base + "-shuffle_index.npy", 0);
}

int64_t GptIndex::document(int64_t place) const {
  const int64_t sequence = documents_.at(place);
  if (sequence >= range_.first && sequence < range_.end) return sequence;
  throw fail(ErrorCode::io, "dataset/megatron: the cached index names sequence ", sequence, " of the sequences ",
             range_.first, " to ", range_.end - 1, "\n   remove the cached index; it is made again");
}

std::vector<GptSpan> GptIndex::sample(int64_t k) const {
  const int64_t row = shuffle_.at(k);
  if (row < 0 || row >= samples_.count() / 2 - 1)
    throw fail(ErrorCode::io, "dataset/megatron: the cached index names sample ", row, " of ", samples());
  const int64_t first = samples_.at(2 * row), offset = samples_.at(2 * row + 1);
  const int64_t last = samples_.at(2 * row + 2), end = samples_.at(2 * row + 3) + 1;
  if (first > last || offset < 0 || end < 0 || (first == last && end < offset))
    throw fail(ErrorCode::io, "dataset/megatron: the cached index goes back at sample ", row, ": from token ", offset,
               " of place ", first, " to token ", end, " of place ", last,
               "\n   remove the cached index; it is made again");
  if (first == last) return {{document(first), offset, end - offset}};
  std::vector<GptSpan> spans = {{document(first), offset}};
  for (int64_t place = first + 1; place < last; ++place) spans.push_back({document(place), 0});
  spans.push_back({document(last), 0, end});
  return spans;
}

}  // namespace drivetrain::megatron
