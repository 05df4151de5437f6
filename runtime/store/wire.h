// What a rank and rank 0's store say to each other once both have proved that they know the run's secret: frames of a
// length (4 bytes, little-endian) and a body. Pure functions; nothing here trusts what it reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "internal.h"

namespace drivetrain {

enum class StoreRequestKind : uint8_t { set = 1, get, has, add, forget, leave };

// get is answered once the key is there, or when its asker says `forget` with the same id. set and add: at once.
// leave, without an answer: this rank will ask nothing more; number 1: because something failed there.
struct StoreRequest {
  uint32_t id = 0;
  StoreRequestKind asks = StoreRequestKind::has;
  int64_t number = 0;
  std::string key, value;
};

// value: what was asked for; absent: not there; refused, stopped: an error's text. Id 0 answers nobody: `value` lets a
// rank in, `stopped` tells all of them.
enum class StoreAnswerKind : uint8_t { value = 1, absent, refused, stopped };
struct StoreAnswer {
  uint32_t id = 0;
  StoreAnswerKind says = StoreAnswerKind::absent;
  std::string text;
};

// A body of the largest key and value there may be, and what stands before them.
inline constexpr size_t kMostFrame = (size_t{64} << 20) + 4096 + 64;

// Whole frames.
DRIVETRAIN_INTERNAL std::string frame_of(const StoreRequest& request);
std::string frame_of(const StoreAnswer& answer);
// Of a body; nothing: it is none.
std::optional<StoreRequest> request_of(std::string_view body);
DRIVETRAIN_INTERNAL std::optional<StoreAnswer> answer_of(std::string_view body);

// Cuts a stream into bodies. What it holds grows with what came, whatever a length claims.
class DRIVETRAIN_INTERNAL FrameCutter {
 public:
  explicit FrameCutter(size_t most) : most_(most) {}
  void take(const char* bytes, size_t count) { bytes_.append(bytes, count); }
  std::optional<std::string> next();
  bool broken() const { return broken_; }  // a length over `most`: nothing that follows means anything

 private:
  const size_t most_;
  std::string bytes_;
  size_t at_ = 0;
  bool broken_ = false;
};

}  // namespace drivetrain
