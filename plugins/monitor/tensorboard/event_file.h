// TensorBoard's event files: records of the message Event (tensorflow/core/util/event.proto), each framed by its length
// and two checksums (TFRecord). Values; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace drivetrain::tensorboard {

// CRC-32C of Castagnoli, RFC 3720 B.4.
inline uint32_t crc32c(const std::string& bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82F63B78u : 0);
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const unsigned char byte : bytes) crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

// TFRecord stores this, so that the checksum of a text with a checksum in it is no special one.
inline uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string record(const std::string& data) {
  const std::string length = little_endian<uint64_t>(data.size());
  return length + little_endian(masked_crc(length)) + data + little_endian(masked_crc(data));
}

// -- fields of protocol buffers

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string int_field(int number, int64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(static_cast<uint64_t>(value));
}
inline std::string double_field(int number, double value) {
  return varint(static_cast<uint64_t>(number) << 3 | 1) + little_endian(value);
}
inline std::string float_field(int number, float value) {
  return varint(static_cast<uint64_t>(number) << 3 | 5) + little_endian(value);
}
inline std::string bytes_field(int number, const std::string& value) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(value.size()) + value;
}

// Event: 1 wall_time in seconds, 2 step, 3 file_version, 5 summary, 7 session_log.
inline std::string event(double wall_time, int64_t step, const std::string& what) {
  return record(double_field(1, wall_time) + int_field(2, step) + what);
}
inline std::string file_version(double wall_time) {
  return record(double_field(1, wall_time) + bytes_field(3, "brain.Event:2"));
}
// SessionLog.START: readers drop what earlier files have from this step on.
inline std::string session_start() { return bytes_field(7, int_field(1, 1)); }
// Summary.Value: 1 tag, 2 simple_value.
inline std::string summary_value(const std::string& tag, double value) {
  return bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
}
inline std::string summary(const std::string& values) { return bytes_field(5, values); }

}  // namespace drivetrain::tensorboard
