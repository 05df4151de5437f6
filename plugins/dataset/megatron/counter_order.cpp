#include "counter_order.h"

#include <algorithm>

#include "permutation.h"

namespace drivetrain::megatron {

CounterOrder::CounterOrder(const std::vector<Member>& members, const std::vector<double>& weights, int64_t seq_length,
                           uint64_t seed, int64_t part)
    : seq_length_(seq_length),
      part_(part),
      seed_(seed),
      streams_(streams_of(members)),
      blend_(weights_of(streams_, weights)) {}

std::vector<CounterOrder::Stream> CounterOrder::streams_of(const std::vector<Member>& members) const {
  std::vector<Stream> streams;
  for (const Member& member : members) {
    const IndexFile& index = member.file->index();
    Stream stream{member.file, index.pointer(member.range.first), 0, 0, member.range};
    const int64_t bytes = index.pointer(member.range.end) - stream.first_byte;
    if (bytes < 0)
      throw fail(ErrorCode::io, "dataset/megatron: ", index.file().path(), ": sequence ", member.range.end,
                 " begins before sequence ", member.range.first, "\n   the file is damaged: copy or prepare it again");
    stream.tokens = bytes / member.file->token_bytes();
    stream.samples = std::max<int64_t>(0, stream.tokens - 1) / seq_length_;
    if (stream.samples == 0)
      throw fail(ErrorCode::config, "dataset/megatron: the ", kPartNames[part_], " part of ", member.file->prefix(),
                 " has ", stream.tokens, " tokens, a row needs seq_length + 1 = ", seq_length_ + 1,
                 "\n   set seq_length to less, give the part more in split, or name more data");
    streams.push_back(std::move(stream));
  }
  return streams;
}

std::vector<double> CounterOrder::weights_of(const std::vector<Stream>& streams, const std::vector<double>& weights) {
  if (!weights.empty()) return weights;
  std::vector<double> sizes;
  for (const Stream& stream : streams) sizes.push_back(static_cast<double>(stream.samples));
  return sizes;
}

CounterOrder::Place CounterOrder::place(int64_t k) const {
  const BlendPlace turn = blend_.at(k);
  const Stream& stream = streams_[static_cast<size_t>(turn.member)];
  const PermutationKey key{seed_, static_cast<uint32_t>(part_), static_cast<uint32_t>(turn.member),
                           static_cast<uint32_t>(turn.sample / stream.samples)};
  const int64_t sample = permuted(turn.sample % stream.samples, stream.samples, key);
  return {&stream, stream.first_byte + sample * seq_length_ * stream.file->token_bytes()};
}

void CounterOrder::read(int64_t k, int64_t* tokens) {
  const Place at = place(k);
  at.stream->file->read(at.byte, seq_length_ + 1, tokens);
}

void CounterOrder::expect(int64_t k) {
  const Place at = place(k);
  at.stream->file->expect(at.byte, seq_length_ + 1);
}

Value CounterOrder::notes(int64_t samples) {
  Value all = Value::object();
  Value& files = all.set("files", Value::object());
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    const int64_t given = blend_.given(static_cast<int64_t>(i), samples);
    Value& note = files.set(stream.file->prefix(), Value::object());
    note.set("sequences", stream.range.count());
    note.set("tokens", stream.tokens);
    note.set("samples_of_an_epoch", stream.samples);
    note.set("epochs", static_cast<double>(given) / static_cast<double>(stream.samples));
  }
  return all;
}

std::vector<std::string> CounterOrder::epochs_begun(int64_t first, int64_t end) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const auto epoch_of = [&](int64_t k) {  // of the last sample before k; 0: none yet
      return (blend_.given(static_cast<int64_t>(i), k) + streams_[i].samples - 1) / streams_[i].samples;
    };
    if (epoch_of(end) > std::max<int64_t>(1, epoch_of(first)))
      lines.push_back(concat("epoch ", epoch_of(end), " of ", streams_[i].file->prefix()));
  }
  return lines;
}

}  // namespace drivetrain::megatron
