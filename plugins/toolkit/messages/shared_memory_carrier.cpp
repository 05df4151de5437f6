#include <drivetrain/toolkit/messages/shared_memory_carrier.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/host_memory/copies.h>

namespace drivetrain::toolkit {

using namespace host_memory;

namespace {

// Beside the tags of messages.
constexpr int kUncopiedTag = 64, kReadTag = 128;
constexpr int64_t kNowhere = -1;

std::string memory_key(const Members& members, int64_t rank) { return concat(members.key, "memory/", rank); }

}  // namespace

// What is said of a long message instead of sending it.
struct SharedMemoryCarrier::Place {
  int64_t at = kNowhere;  // offset in the sender's shared memory; kNowhere: it comes by kUncopiedTag
  int64_t bytes = 0, number = 0;
};

// A message that the receiver has not read yet.
struct SharedMemoryCarrier::Lent final : Transfer {
  Place place;
  int64_t copy = kNowhere;  // the offset of its copy; kNowhere: it lies where the caller has it
  TransferPtr word, uncopied;
  bool read = false;
  bool done() override { return word->done() && (uncopied ? uncopied->done() : read); }
};

// Messages that were read, and whose senders do not know it yet. Transfers are dropped on any thread.
class SharedMemoryCarrier::Read {
 public:
  struct Message {
    int64_t channel = 0;
    int from = 0;
    int64_t number = 0;
  };
  void add(const Message& message) {
    const std::lock_guard lock(mutex_);
    list_.push_back(message);
  }
  std::vector<Message> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(list_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Message> list_;
};

// A message to this rank.
struct SharedMemoryCarrier::Arriving final : Transfer {
  SharedMemoryCarrier* carrier = nullptr;
  Read::Message message;
  int64_t rank = 0;
  int tag = 0;
  char* data = nullptr;
  int64_t bytes = 0;
  bool looks = false, placed = false, read = false;
  // A rank that is wrong about the length may send a short message here.
  std::unique_ptr<char[]> word_bytes = std::make_unique_for_overwrite<char[]>(kShortBytes);
  TransferPtr word, uncopied;
  const char* there = nullptr;
  std::shared_ptr<Read> told;
  Stream* stream = nullptr;

  ~Arriving() override {
    if (there != nullptr && !read) told->add(message);
  }
  const char* at() const override { return looks ? there : nullptr; }
  bool done() override {
    if (!placed) carrier->take_places(*stream);
    return placed && (!uncopied || uncopied->done());
  }

  void take_place() {
    Place place;
    std::memcpy(&place, word_bytes.get(), sizeof place);
    placed = true;
    if (place.bytes > bytes || place.bytes < 0)
      throw fail(ErrorCode::communication, "rank ", rank, " sent ", place.bytes, " bytes where ", bytes,
                 " were expected");
    if (place.at == kNowhere) {
      uncopied = carrier->below_->recv(message.channel, message.from, tag + kUncopiedTag, data, place.bytes);
      return;
    }
    message.number = place.number;
    there = carrier->room()->find(rank, place.at, place.bytes);
    if (there == nullptr)
      throw fail(ErrorCode::communication, "rank ", rank, " lent ", place.bytes, " bytes at offset ", place.at,
                 " of its shared memory, which are not there");
    if (looks) return;
    copy_bytes(data, there, place.bytes);
    read = true;
    told->add(message);
  }
};

SharedMemoryCarrier::SharedMemoryCarrier(std::shared_ptr<Carrier> below, const Services& services, double timeout_s)
    : below_(std::move(below)), services_(services), timeout_s_(timeout_s), read_(std::make_shared<Read>()) {}

// After a failure the carrier below may still read and write what was never waited for: words, announcements of
// messages, and the places where some are expected. So these stay.
SharedMemoryCarrier::~SharedMemoryCarrier() {
  const auto abandon = [](auto& map) {
    if (!map.empty()) static_cast<void>(new auto(std::move(map)));
  };
  std::erase_if(streams_, [](const auto& stream) { return stream.second.empty(); });
  abandon(streams_), abandon(lent_), abandon(awaited_), abandon(sent_);
}

std::shared_ptr<Room> SharedMemoryCarrier::room() {
  const std::lock_guard lock(room_mutex_);
  return room_;
}

int64_t SharedMemoryCarrier::open(const Members& members, const std::function<void()>& meanwhile) {
  Channel channel{members.ranks, std::vector<char>(members.ranks.size())};
  const auto me = static_cast<size_t>(members.me);
  for (size_t i = 0; i < members.ranks.size(); ++i) channel.near[i] = i != me && members.hosts[i] == members.hosts[me];
  const bool any = std::count(channel.near.begin(), channel.near.end(), 1) != 0;
  if (any) {
    {
      const std::lock_guard lock(room_mutex_);
      if (!room_) room_ = std::make_shared<Room>(services_.rank, services_.world_size);
    }
    services_.store.set(memory_key(members, services_.rank), room()->announcement());
  }
  const int64_t number = below_->open(members, meanwhile);
  for (size_t i = 0; i < members.ranks.size(); ++i)
    if (channel.near[i]) meet(members.ranks[i], services_.store.get(memory_key(members, members.ranks[i]), timeout_s_));
  const std::lock_guard lock(mutex());
  channels_[number] = std::move(channel);
  return number;
}

// It may be gone again: who waits for it finds out why.
void SharedMemoryCarrier::meet(int64_t rank, const std::string& announcement) {
  try {
    room()->meet(rank, announcement);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::communication) throw;
    const std::lock_guard lock(mutex());
    lost_.emplace(rank, e.what());
  }
}

std::string SharedMemoryCarrier::lost(int64_t rank) {
  const auto unmapped = lost_.find(rank);
  return unmapped != lost_.end() ? unmapped->second : below_->lost(rank);
}

void SharedMemoryCarrier::close(int64_t channel) noexcept {
  try {
    flush();                         // the others may wait to hear what was read
  } catch (const std::exception&) {  // a wait tells
  }
  channels_.erase(channel);
  std::erase_if(streams_,
                [channel](const auto& entry) { return std::get<0>(entry.first) == channel && entry.second.empty(); });
  below_->close(channel);
}

bool SharedMemoryCarrier::is_near(int64_t channel, int member) const {
  return channels_.at(channel).near.at(static_cast<size_t>(member)) != 0;
}

int64_t SharedMemoryCarrier::rank_of(int64_t channel, int member) const {
  return channels_.at(channel).ranks.at(static_cast<size_t>(member));
}

std::shared_ptr<char> SharedMemoryCarrier::allocate(int64_t bytes) {
  const std::shared_ptr<Room> shared = room();
  if (!shared) return below_->allocate(bytes);
  const auto block = shared->allocate(bytes);
  return {block.address, [shared, offset = block.offset](char*) { shared->release(offset); }};
}

TransferPtr SharedMemoryCarrier::send(int64_t channel, int to, int tag, const void* data, int64_t bytes) {
  const bool lends = bytes > kShortBytes && is_near(channel, to);
  return lends ? lend(channel, to, tag, data, bytes) : below_->send(channel, to, tag, data, bytes);
}

TransferPtr SharedMemoryCarrier::lend(int64_t channel, int to, int tag, const void* data, int64_t bytes) {
  auto lent = std::make_shared<Lent>();
  lent->place = {room_->offset_of(data, bytes), bytes, lent_count_++};
  if (lent->place.at == kNowhere && copied_bytes_ + bytes <= kMostCopied) {
    const auto block = room_->allocate(bytes);
    stream_bytes(block.address, static_cast<const char*>(data), bytes);
    end_of_stream();
    lent->place.at = lent->copy = block.offset;
    copied_bytes_ += bytes;
  }
  lent->word = below_->send(channel, to, tag, &lent->place, sizeof(Place));
  if (lent->place.at == kNowhere) {
    lent->uncopied = below_->send(channel, to, tag + kUncopiedTag, data, bytes);
    return lent;
  }
  lent_[lent->place.number] = lent;
  auto word = std::make_unique<Word>();
  word->transfer = below_->recv(channel, to, kReadTag, &word->number, sizeof word->number);
  awaited_.push_back(std::move(word));
  return lent;
}

TransferPtr SharedMemoryCarrier::recv(int64_t channel, int from, int tag, void* data, int64_t bytes) {
  return receive(channel, from, tag, data, bytes, false);
}

TransferPtr SharedMemoryCarrier::look(int64_t channel, int from, int tag, void* data, int64_t bytes) {
  return receive(channel, from, tag, data, bytes, true);
}

TransferPtr SharedMemoryCarrier::receive(int64_t channel, int from, int tag, void* data, int64_t bytes, bool looks) {
  if (bytes <= kShortBytes || !is_near(channel, from))
    return looks ? below_->look(channel, from, tag, data, bytes) : below_->recv(channel, from, tag, data, bytes);
  auto arriving = std::make_shared<Arriving>();
  arriving->carrier = this, arriving->told = read_;
  arriving->message = {channel, from, 0}, arriving->rank = rank_of(channel, from), arriving->tag = tag;
  arriving->data = static_cast<char*>(data), arriving->bytes = bytes, arriving->looks = looks;
  arriving->word = below_->recv(channel, from, tag, arriving->word_bytes.get(), kShortBytes);
  arriving->stream = &streams_[{channel, from, tag}];
  arriving->stream->push_back(arriving);
  return arriving;
}

// In the order of their words, in which what is not copied comes too.
void SharedMemoryCarrier::take_places(Stream& stream) {
  while (!stream.empty() && stream.front()->word->done()) {
    const std::shared_ptr<Arriving> next = std::move(stream.front());
    stream.pop_front();
    next->take_place();
  }
}

// Words of one rank come in the order in which they were sent, which need not be that of the messages.
void SharedMemoryCarrier::take_words() {
  const auto is_done = [](const std::unique_ptr<Word>& word) { return word->transfer->done(); };
  for (auto word = awaited_.begin(); word != awaited_.end();) {
    if (!is_done(*word)) {
      ++word;
      continue;
    }
    const auto lent = lent_.find((*word)->number);
    if (lent == lent_.end())
      throw fail(ErrorCode::communication, "a rank of this host has read message ", (*word)->number,
                 ", which was not lent to it");
    lent->second->read = true;
    if (lent->second->copy != kNowhere) {
      room_->release(lent->second->copy);
      copied_bytes_ -= lent->second->place.bytes;
    }
    lent_.erase(lent);
    word = awaited_.erase(word);
  }
  std::erase_if(sent_, is_done);
}

void SharedMemoryCarrier::advance() {
  below_->advance();
  take_words();
  flush();
}

void SharedMemoryCarrier::flush() {
  for (const Read::Message& message : read_->take()) {
    auto word = std::make_unique<Word>();
    word->number = message.number;
    word->transfer = below_->send(message.channel, message.from, kReadTag, &word->number, sizeof word->number);
    sent_.push_back(std::move(word));
  }
  below_->flush();
}

}  // namespace drivetrain::toolkit
