#include "contract/safetensors_header.h"

#include <algorithm>
#include <cstring>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/utf8.h>

#include "base/printable.h"
#include "contract/safetensors_json.h"

namespace drivetrain {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;

template <class... Parts>
Error bad_file(const std::string& path, const Parts&... parts) {
  return fail(ErrorCode::io, path, ": not a valid safetensors file: ", parts...,
              "\n   the file is damaged or was cut short: copy, download or write it again");
}

void check_text(const std::string& path, std::string_view text) {
  const size_t valid = valid_utf8(text);
  if (valid < text.size()) throw bad_file(path, "the header is not UTF-8 at byte ", kLengthBytes + valid);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") throw bad_file(path, "the header begins with a byte-order mark (byte 8)");
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    throw bad_file(path, "the header has a NUL at byte ", kLengthBytes + nul, "; only spaces may pad it");
  }
}

// Bytes of a tensor of this shape, each product checked.
uint64_t entry_bytes(const std::string& path, const SafetensorsEntry& entry) {
  const auto times = [&](uint64_t a, uint64_t b) {
    uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) {
      throw bad_file(path, "tensor \"", shown(entry.name), "\": its size overflows 64 bits");
    }
    return product;
  };
  uint64_t bits = 1;
  for (const int64_t size : entry.shape) bits = times(bits, static_cast<uint64_t>(size));
  bits = times(bits, static_cast<uint64_t>(entry.dtype->bits));
  if (bits % 8 != 0) {
    throw bad_file(path, "tensor \"", shown(entry.name), "\": ", bits, " bits of ", entry.dtype->name,
                   " are not a whole number of bytes");
  }
  return bits / 8;
}

void check_entry(const std::string& path, const SafetensorsEntry& entry, uint64_t expected_begin,
                 uint64_t data_offset) {
  if (entry.begin != expected_begin || entry.end < entry.begin) {
    const char* what = entry.end < entry.begin        ? "ends before it begins"
                       : entry.begin > expected_begin ? "leaves a hole behind the tensor before it"
                                                      : "overlaps the tensor before it";
    throw bad_file(path, "tensor \"", shown(entry.name), "\" ", what, ": data_offsets [", entry.begin, ", ", entry.end,
                   "], expected to begin at ", expected_begin, " (byte ", data_offset + expected_begin,
                   " of the file)");
  }
  const uint64_t bytes = entry_bytes(path, entry);
  if (entry.end - entry.begin != bytes) {
    throw bad_file(path, "tensor \"", shown(entry.name), "\" has ", entry.end - entry.begin, " bytes at byte ",
                   data_offset + entry.begin, ", but its shape and ", entry.dtype->name, " need ", bytes);
  }
}

void check_end(const std::string& path, uint64_t data_end, uint64_t data_offset, uint64_t file_bytes) {
  const uint64_t there = file_bytes - data_offset;
  if (there == data_end) return;
  const bool missing = there < data_end;
  throw bad_file(path, "the data should end at byte ", data_offset + data_end, ", the file ends at byte ", file_bytes,
                 ": ", missing ? data_end - there : there - data_end,
                 missing ? " bytes are missing" : " bytes too many");
}

}  // namespace

// Nothing is allocated before the length is known to fit the file.
uint64_t safetensors_header_bytes(const std::string& path, std::string_view first_bytes, uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    throw bad_file(path, "it has ", file_bytes, " bytes, too few for the header's length (8 bytes at byte 0)");
  }
  uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    throw bad_file(path, "the header's length, ", length, " bytes (at byte 0), is above the limit of ",
                   kMaxHeaderBytes);
  }
  if (length > file_bytes - kLengthBytes) {
    throw bad_file(path, "the header would end at byte ", kLengthBytes + length, ", the file ends at byte ",
                   file_bytes);
  }
  return kLengthBytes + length;
}

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view head, uint64_t file_bytes) {
  const std::string_view text =
      head.substr(kLengthBytes, safetensors_header_bytes(path, head, file_bytes) - kLengthBytes);
  check_text(path, text);
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + text.size();
  const SafetensorsJsonProblem problem = read_safetensors_json(text, header);
  if (!problem.message.empty()) throw bad_file(path, problem.message, " (byte ", kLengthBytes + problem.offset, ")");

  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    check_entry(path, entry, end, header.data_offset);
    end = entry.end;
  }
  check_end(path, end, header.data_offset, file_bytes);
  return header;
}

std::string safetensors_header_text(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata) {
  std::string json = write_safetensors_json(entries, metadata);
  json.append((8 - json.size() % 8) % 8, ' ');  // so that the data begin at a multiple of 8
  const uint64_t length = json.size();
  std::string text(kLengthBytes, '\0');
  std::memcpy(text.data(), &length, kLengthBytes);
  return text + json;
}

}  // namespace drivetrain
