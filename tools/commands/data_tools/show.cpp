#include "data_tools/show.h"

#include <algorithm>
#include <bit>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

std::string range_text(size_t bar) {
  return bar == 0 ? "0 to 1" : concat(uint64_t{1} << bar, " to ", (uint64_t{1} << (bar + 1)) - 1);
}

Value count_value(uint64_t n) { return static_cast<int64_t>(n); }

}  // namespace

LengthHistogram length_histogram(const TokenFile& file) {
  LengthHistogram histogram;
  std::vector<uint64_t> lengths(file.documents());
  for (uint64_t d = 0; d < lengths.size(); ++d) lengths[d] = file.document_length(d);
  for (const uint64_t length : lengths) {
    const size_t bar = length < 2 ? 0 : static_cast<size_t>(std::bit_width(length)) - 1;
    if (histogram.bars.size() <= bar) histogram.bars.resize(bar + 1);
    ++histogram.bars[bar];
  }
  if (lengths.empty()) return histogram;
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  histogram.median = *middle;
  const auto [low, high] = std::minmax_element(lengths.begin(), lengths.end());
  histogram.shortest = *low, histogram.longest = *high;
  histogram.mean = static_cast<double>(file.tokens()) / static_cast<double>(lengths.size());
  return histogram;
}

DocumentSample sample_document(const TokenFile& file, uint64_t document, uint64_t most, const Tokenizer* tokenizer) {
  if (document >= file.documents())
    throw fail(ErrorCode::config, file.prefix(), ": there is no document ", document, "; it has ", file.documents(),
               ", counted from 0");
  DocumentSample sample{document, file.document_length(document), file.document(document, most), {}};
  if (!tokenizer) return sample;
  const int64_t end = tokenizer->facts().vocab_size;
  std::vector<int32_t> ids;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const int64_t id = sample.ids[i];
    if (id < 0 || id >= end)
      throw fail(ErrorCode::config, bin_path(file.prefix()), ": document ", document, ", position ", i, ": token ", id,
                 " is none of the tokenizer, which has ", end, " ids: the data were made with another one");
    ids.push_back(static_cast<int32_t>(id));
  }
  sample.text.emplace();
  tokenizer->decode(ids, *sample.text);
  return sample;
}

std::string show_text(const TokenFile& file, const LengthHistogram& histogram, const DocumentSample& sample) {
  std::string text =
      concat(file.prefix(), ": ", file.documents(), " documents, ", file.tokens(), " tokens (", file.type().name, ", ",
             formatted("%.1f MB", static_cast<double>(file.bin_bytes()) / 1e6), ")\n");
  if (file.sequences() != file.documents()) text += concat("sequences: ", file.sequences(), "\n");
  text += concat("tokens per document: ", histogram.shortest, " to ", histogram.longest, ", median ", histogram.median,
                 formatted(", mean %.1f\n", histogram.mean));
  const uint64_t most = histogram.bars.empty() ? 1 : *std::max_element(histogram.bars.begin(), histogram.bars.end());
  for (size_t i = 0; i < histogram.bars.size(); ++i) {
    if (histogram.bars[i] == 0) continue;
    const auto width = static_cast<size_t>((40 * histogram.bars[i] + most - 1) / most);
    text += formatted("  %22s %12s ", range_text(i).c_str(), concat(histogram.bars[i]).c_str()) +
            std::string(width, '#') + "\n";
  }
  text += concat("document ", sample.document, ": ", sample.length, " tokens",
                 sample.ids.size() < sample.length ? ", of which the first " : "",
                 sample.ids.size() < sample.length ? concat(sample.ids.size()) : "", "\n");
  text += sample.text ? *sample.text : join(sample.ids, " ");
  return text + "\n";
}

Value show_value(const TokenFile& file, const LengthHistogram& histogram, const DocumentSample& sample) {
  Value value = Value::object();
  value.set("prefix", file.prefix());
  value.set("documents", count_value(file.documents())), value.set("sequences", count_value(file.sequences()));
  value.set("tokens", count_value(file.tokens())), value.set("type", file.type().name);
  value.set("bytes", count_value(file.bin_bytes()));
  Value& lengths = value.set("lengths", Value::object());
  lengths.set("shortest", count_value(histogram.shortest)), lengths.set("median", count_value(histogram.median));
  lengths.set("longest", count_value(histogram.longest)), lengths.set("mean", histogram.mean);
  Value::Array bars;
  for (size_t i = 0; i < histogram.bars.size(); ++i) {
    if (histogram.bars[i] == 0) continue;
    Value bar = Value::object();
    bar.set("from", count_value(i == 0 ? 0 : uint64_t{1} << i));
    bar.set("to", count_value((uint64_t{1} << (i + 1)) - 1)), bar.set("documents", count_value(histogram.bars[i]));
    bars.push_back(std::move(bar));
  }
  lengths.set("histogram", std::move(bars));
  Value& document = value.set("document", Value::object());
  document.set("index", count_value(sample.document)), document.set("length", count_value(sample.length));
  Value::Array ids(sample.ids.begin(), sample.ids.end());
  document.set("ids", std::move(ids));
  if (sample.text) document.set("text", *sample.text);
  return value;
}

std::vector<std::string> verify_token_file(const TokenFile& file, int64_t vocab_size) {
  std::vector<std::string> problems = file.problems();
  return problems.empty() ? file.wrong_ids(vocab_size) : problems;
}

void want_whole_file(const TokenFile& file) {
  const std::vector<std::string> problems = file.problems(1);
  if (!problems.empty()) throw fail(ErrorCode::io, problems[0], "\n   `data verify` lists all problems");
}

}  // namespace drivetrain
