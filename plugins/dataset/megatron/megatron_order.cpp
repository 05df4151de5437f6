#include "megatron_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace drivetrain::megatron {
namespace {

// More than a member's share is made, so that the blend never runs out (mid_level_dataset_surplus).
constexpr double kSurplus = 0.005;

int64_t share_of(int64_t samples, double weight) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * weight));
}
int64_t with_surplus(int64_t samples) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * (1 + kSurplus)));
}

int64_t tokens_of(const std::vector<int32_t>& lengths) {
  int64_t tokens = 0;
  for (const int32_t length : lengths) tokens += length;
  return tokens;
}

// Without a walk over all lengths: right if the sequences lie one after another, else no kept index fits.
int64_t tokens_by_pointers(const Member& member) {
  const IndexFile& index = member.file->index();
  return (index.pointer(member.range.end) - index.pointer(member.range.first)) / member.file->token_bytes();
}

// What one epoch of every member has, for a blend that is not told how many samples to make.
int64_t samples_of_an_epoch(const std::vector<Member>& members, int64_t seq_length) {
  int64_t samples = 0;
  for (const Member& member : members) samples += std::max<int64_t>(0, tokens_by_pointers(member) - 1) / seq_length;
  return samples;
}

}  // namespace

MegatronOrder::MegatronOrder(const std::vector<Member>& members, const MegatronRequest& request, const Split& split,
                             Log& log)
    : seq_length_(request.seq_length) {
  const std::vector<double> weights = request.weights.empty() ? std::vector<double>() : normalized(request.weights);
  const int64_t wanted = request.samples.value_or(samples_of_an_epoch(members, seq_length_));
  for (size_t i = 0; i < members.size(); ++i) {
    if (!weights.empty())
      add(members[i], with_surplus(share_of(wanted, weights[i])), request, split, log);
    else
      add(members[i], request.blended ? std::nullopt : request.samples, request, split, log);
  }
  if (!weights.empty())
    blend_by(weights, wanted);
  else if (request.blended)
    blend_by_size(request.samples);
  else
    samples_ = members_.front().index.samples();
}

void MegatronOrder::add(const Member& member, std::optional<int64_t> asked, const MegatronRequest& request,
                        const Split& split, Log& log) {
  const std::string& prefix = member.file->prefix();
  const IndexRequest wanted{prefix, request.part, asked, request.seq_length, request.seed, request.split_text};
  const int64_t tokens = tokens_by_pointers(member);
  const auto refuse = [&](int64_t found) {
    return fail(ErrorCode::config, "dataset/megatron: the ", kPartNames[request.part], " part of ", prefix, " has ",
                found, " tokens, of which no sample of seq_length + 1 = ", request.seq_length + 1,
                " can be made\n   set seq_length to less, give the part more in split, or name more data");
  };
  if (tokens > 0) {
    const GptShape shape = gpt_shape(tokens, request.seq_length, asked);
    for (const std::string& folder : {request.index_cache, prefix + "/cache/GPTDataset_indices"}) {
      if (folder.empty()) continue;
      auto found = find_index(folder, wanted, split, member.range, shape);
      if (!found) continue;
      log.info(
          concat("dataset/megatron: the ", kPartNames[request.part], " index of ", prefix, " is read from ", folder));
      members_.push_back({member, shape, std::move(*found)});
      return;
    }
  }
  const std::vector<int32_t> lengths = member.file->index().lengths(member.range.first, member.range.count());
  const int64_t counted = tokens_of(lengths);
  if (counted == 0) throw refuse(0);
  const GptShape shape = gpt_shape(counted, request.seq_length, asked);
  if (shape.samples == 0) throw refuse(counted);
  GptIndex index = GptIndex::build(lengths, member.range, shape, request.seed);
  if (request.writes && !request.index_cache.empty()) keep_index(request.index_cache, wanted, split, index);
  members_.push_back({member, shape, std::move(index)});
}

void MegatronOrder::blend_by(const std::vector<double>& weights, int64_t samples) {
  for (const double weight : weights) samples_ += share_of(samples, weight);
  blend_.emplace(normalized(weights), false);  // it does so twice
  check_blend();
}

void MegatronOrder::blend_by_size(std::optional<int64_t> asked) {
  std::vector<double> sizes;
  for (const Indexed& member : members_) {
    sizes.push_back(static_cast<double>(member.index.samples()));
    samples_ += member.index.samples();
  }
  if (asked) samples_ = std::min(samples_, *asked);
  blend_.emplace(asked ? normalized(sizes) : sizes, !asked);
  check_blend();
}

void MegatronOrder::check_blend() {
  const std::vector<int64_t> given = blend_->given(samples_);
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i] > members_[i].index.samples())
      throw fail(ErrorCode::config, "dataset/megatron: the blend takes ", given[i], " samples of ",
                 members_[i].member.file->prefix(), ", for which Megatron-Core makes ", members_[i].index.samples(),
                 "; it stops there, too\n   ask for fewer samples or use \"order\": \"counter\"");
}

BlendPlace MegatronOrder::turn_of(int64_t k) { return blend_ ? blend_->at(k) : BlendPlace{0, k}; }

void MegatronOrder::expect(int64_t k) {
  const BlendPlace turn = turn_of(k);
  const Indexed& from = members_[static_cast<size_t>(turn.member)];
  const TokenFile& file = *from.member.file;
  for (const GptSpan& span : from.index.sample(turn.sample))
    file.expect(file.index().pointer(span.sequence) + span.first * file.token_bytes(),
                span.count < 0 ? seq_length_ : span.count);
}

void MegatronOrder::read(int64_t k, int64_t* tokens) {
  const BlendPlace turn = turn_of(k);
  const Indexed& from = members_[static_cast<size_t>(turn.member)];
  const TokenFile& file = *from.member.file;
  int64_t left = seq_length_ + 1;
  for (const GptSpan& span : from.index.sample(turn.sample)) {
    const int64_t count = span.count < 0 ? file.index().length(span.sequence) - span.first : span.count;
    if (count < 0 || count > left) break;
    file.read_sequence(span.sequence, span.first, count, tokens);
    tokens += count, left -= count;
  }
  if (left > 0)
    throw fail(ErrorCode::io, "dataset/megatron: the index of ", file.prefix(), " does not fit the lengths in ",
               file.index().file().path(), "\n   remove the cached index; it is made again");
}

Value MegatronOrder::notes(int64_t samples) {
  Value all = Value::object();
  all.set("samples", samples_);
  Value& files = all.set("files", Value::object());
  const std::vector<int64_t> given = blend_ ? blend_->given(std::min(samples, samples_)) : std::vector{samples};
  for (size_t i = 0; i < members_.size(); ++i) {
    const Indexed& member = members_[i];
    Value& note = files.set(member.member.file->prefix(), Value::object());
    note.set("sequences", member.member.range.count());
    note.set("tokens", member.shape.tokens);
    note.set("samples", member.index.samples());
    note.set("epochs", member.shape.epochs);
    note.set("taken", given[i]);
  }
  return all;
}

}  // namespace drivetrain::megatron
