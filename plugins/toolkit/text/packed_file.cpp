#include <drivetrain/toolkit/text/packed_file.h>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

struct Format {
  std::string_view begin;
  const char *name, *command;  // before the file's name
};

constexpr Format kFormats[] = {
    {"\x1F\x8B", "packed by gzip", "gzip -dk"},
    {"\x28\xB5\x2F\xFD", "packed by zstd", "zstd -d"},
    {std::string_view("\xFD\x37zXZ\0", 6), "packed by xz", "xz -dk"},
    {"BZh", "packed by bzip2", "bzip2 -dk"},
    {"PK\x03\x04", "a zip archive", "unzip"},
    {"PAR1", "a table in Apache Parquet", nullptr},
    {"ARROW1", "a table in Apache Arrow", nullptr},
};

}  // namespace

void refuse_packed(std::string_view begin, std::string_view reader, const std::string& path) {
  for (const Format& format : kFormats) {
    if (!begin.starts_with(format.begin)) continue;
    throw fail(
        ErrorCode::io, reader, ": ", path, " is ", format.name, ", and is read as text\n   ",
        format.command
            ? concat("unpack it with `", format.command, " ", path, "`, and name the file that this makes")
            : concat("write it as JSON lines with `tools/table_to_jsonl ", path, "` of the source tree, or in Python ",
                     "pandas.read_", format.begin == "PAR1" ? "parquet" : "feather", "(\"", path,
                     "\").to_json(\"data.jsonl\", orient=\"records\", lines=True), and name that file"));
  }
}

}  // namespace drivetrain
