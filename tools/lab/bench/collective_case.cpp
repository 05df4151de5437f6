#include "bench/collective_case.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <charconv>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

constexpr int64_t kElementBytes = 4;
constexpr int64_t kPeriod = 61;             // of the values, so that a slice in the wrong place shows
constexpr int64_t kPiece = kPeriod * 4096;  // values made and compared at a time

struct CollectiveRow {
  const char* name;
  double (*factor)(double ranks);
  bool whole_in, whole_out;  // or one rank's share of the payload
  bool in_place;
};

double factor_one(double) { return 1; }
double factor_of_shares(double n) { return (n - 1) / n; }
double factor_of_sums(double n) { return 2 * (n - 1) / n; }

constexpr CollectiveRow kCollectives[] = {
    {"all_reduce", factor_of_sums, true, true, true},
    {"all_gather", factor_of_shares, false, true, false},
    {"reduce_scatter", factor_of_shares, true, false, false},
    {"all_to_all", factor_of_shares, true, true, false},
    {"broadcast", factor_one, true, true, true},
    {"send_recv", factor_one, true, true, false},
};

const CollectiveRow& row_of(const std::string& name) {
  for (const CollectiveRow& row : kCollectives)
    if (name == row.name) return row;
  throw fail(ErrorCode::config, "bench collectives: there is no collective \"", name, "\"; there are ",
             join(collective_names()));
}

// Small whole numbers: their sums over ranks are exact.
double scale_of(int64_t rank) { return static_cast<double>(rank % 16 + 1); }

// Values begin .. begin + length of rank 0; those of rank r are scale_of(r) times as large.
class CollectiveValues {
 public:
  explicit CollectiveValues(const at::Device& device)
      : two_periods_(at::arange(kPiece + kPeriod, at::TensorOptions(at::kLong).device(device))
                         .remainder(kPeriod)
                         .add(1)
                         .to(at::kFloat)) {}
  at::Tensor at(int64_t begin, int64_t length) const { return two_periods_.narrow(0, begin % kPeriod, length); }

 private:
  at::Tensor two_periods_;
};

template <class OnPiece>
void in_pieces(int64_t length, const OnPiece& on_piece) {
  for (int64_t begin = 0; begin < length; begin += kPiece) on_piece(begin, std::min(kPiece, length - begin));
}

// Part of what a collective gives: values from..from+length, scaled.
struct ExpectedPart {
  double scale;
  int64_t from, length;
};

std::vector<ExpectedPart> expected_parts(const std::string& collective, const Group& group, int64_t elements) {
  const int64_t n = group.size(), me = group.rank(), share = elements / n;
  double sum = 0;
  for (int64_t r = 0; r < n; ++r) sum += scale_of(r);
  if (collective == "all_reduce") return {{sum, 0, elements}};
  if (collective == "reduce_scatter") return {{sum, me * share, share}};
  if (collective == "broadcast") return {{scale_of(0), 0, elements}};
  if (collective == "send_recv") return {{scale_of((me + n - 1) % n), 0, elements}};
  std::vector<ExpectedPart> parts;
  for (int64_t r = 0; r < n; ++r) parts.push_back({scale_of(r), collective == "all_to_all" ? me * share : 0, share});
  return parts;
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const CollectiveRow& row : kCollectives) list.push_back(row.name);
    return list;
  }();
  return names;
}

double bus_factor(const std::string& collective, int64_t ranks) {
  return row_of(collective).factor(static_cast<double>(ranks));
}

int64_t bytes_of_text(const std::string& option, const std::string& text) {
  const std::string units = "KMG";
  std::string digits = text;
  int64_t unit = 1;
  if (!digits.empty() && units.find(digits.back()) != std::string::npos) {
    for (size_t power = units.find(digits.back()) + 1; power > 0; --power) unit *= 1024;
    digits.pop_back();
  }
  int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, failed] = std::from_chars(digits.data(), end, number);
  if (failed != std::errc() || stop != end || number < 1 || number > (int64_t{1} << 40) / unit)
    throw fail(ErrorCode::config, "bench collectives: ", option, " wants bytes from 1 to 1024G, such as 65536, 64K or ",
               "32M, got \"", text, "\"");
  return number * unit;
}

std::vector<int64_t> payload_sizes(int64_t from, int64_t to) {
  if (from > to)
    throw fail(ErrorCode::config, "bench collectives: the smallest size, ", from, " bytes, is above the largest, ", to);
  std::vector<int64_t> sizes;
  for (int64_t bytes = from; bytes < to; bytes *= 4) sizes.push_back(bytes);
  sizes.push_back(to);
  return sizes;
}

const char* buffer_name(BufferKind kind) {
  switch (kind) {
    case BufferKind::mapped:
      return "mapped";
    case BufferKind::private_:
      return "private";
    case BufferKind::once:
      return "once";
  }
  return "";
}

CollectiveCase::CollectiveCase(const std::string& collective, BufferKind kind, int64_t bytes, GroupPtr group,
                               const at::Device& device)
    : collective_(collective), kind_(kind), group_(std::move(group)), device_(device) {
  elements_ = std::max<int64_t>(1, bytes / kElementBytes / group_->size()) * group_->size();
  row_of(collective_);
  make_buffers();
}

void CollectiveCase::make_buffers() {
  const CollectiveRow& row = row_of(collective_);
  const int64_t share = elements_ / group_->size();
  if (kind_ == BufferKind::once) {
    if (collective_ != "all_gather")
      throw fail(ErrorCode::internal, "bench collectives: ", collective_, " in memory that exists once");
    out_ = group_->allocate_once(elements_, at::kFloat);
    if (out_.defined()) in_ = own_slice(out_);
    return;
  }
  in_ = buffer(row.whole_in ? elements_ : share);
  out_ = row.in_place ? in_ : buffer(row.whole_out ? elements_ : share);
}

at::Tensor CollectiveCase::buffer(int64_t elements) const {
  if (kind_ == BufferKind::mapped) return group_->allocate(elements, at::kFloat);
  return at::empty({elements}, at::TensorOptions(at::kFloat).device(device_));
}

at::Tensor CollectiveCase::own_slice(const at::Tensor& whole) const {
  const int64_t share = elements_ / group_->size();
  return whole.narrow(0, group_->rank() * share, share);
}

std::string CollectiveCase::text() const {
  return concat(collective_, " of ", bytes(), " bytes in ", buffer_name(kind_), " buffers");
}

void CollectiveCase::call() {
  Group& group = *group_;
  if (collective_ == "all_reduce") return group.all_reduce(out_)->wait();
  if (collective_ == "all_gather") return group.all_gather(out_, in_)->wait();
  if (collective_ == "reduce_scatter") return group.reduce_scatter(out_, in_)->wait();
  if (collective_ == "all_to_all") return group.all_to_all(out_, in_)->wait();
  if (collective_ == "broadcast") return group.broadcast(out_, 0)->wait();
  const int64_t n = group.size(), me = group.rank();
  group.batch_begin();
  const WorkPtr sent = group.send(in_, (me + 1) % n), received = group.recv(out_, (me + n - 1) % n);
  group.batch_end();
  sent->wait(), received->wait();
}

void CollectiveCase::check() {
  const CollectiveValues values(device_);
  const double mine = scale_of(group_->rank());
  if (!row_of(collective_).in_place && kind_ != BufferKind::once) out_.fill_(-1);
  in_pieces(in_.numel(), [&](int64_t begin, int64_t length) {
    in_.narrow(0, begin, length).copy_(values.at(begin, length).mul(mine));
  });
  call();
  int64_t at_element = 0;
  for (const ExpectedPart& part : expected_parts(collective_, *group_, elements_)) {
    in_pieces(part.length, [&](int64_t begin, int64_t length) {
      const at::Tensor wanted = values.at(part.from + begin, length).mul(part.scale);
      const at::Tensor found = out_.narrow(0, at_element + begin, length);
      if (at::equal(wanted, found)) return;
      const int64_t first = wanted.ne(found).nonzero().flatten()[0].item<int64_t>();
      throw fail(ErrorCode::communication, "rank ", group_->rank(), ": ", text(), " gave wrong values: element ",
                 at_element + begin + first, " is ", found[first].item<float>(), ", wanted ",
                 wanted[first].item<float>());
    });
    at_element += part.length;
  }
  group_->barrier();                   // a peer may still be comparing what this rank writes next
  if (in_.is_same(out_)) in_.zero_();  // sums of sums would not stay finite
}

}  // namespace drivetrain
