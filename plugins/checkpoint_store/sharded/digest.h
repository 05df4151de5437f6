// The digest of the store: XXH3 with 128 bits. It finds damage and mistakes, not forgery. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace drivetrain::sharded {

struct Digest {
  uint64_t high = 0, low = 0;
  bool operator==(const Digest&) const = default;
  std::string text() const;  // 32 lower-case hexadecimal digits, as xxh128sum prints them
};

Digest digest_of(const void* data, size_t bytes);

// The same of bytes that come in parts.
class DigestStream {
 public:
  DigestStream();
  void add(const void* data, size_t bytes);
  Digest digest() const;

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, FreeState> state_;
};
inline Digest digest_of(std::string_view text) { return digest_of(text.data(), text.size()); }

// No value for anything but exactly what Digest::text gives.
std::optional<Digest> read_digest(std::string_view text);

}  // namespace drivetrain::sharded
