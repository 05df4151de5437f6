// Every rule of the format, each with a file that breaks it.
#include <sys/stat.h>

#include <drivetrain/safetensors.h>

#include "unit/state_files.h"

namespace drivetrain {
namespace {

using namespace test;

class SafetensorsRead : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& bytes) {
    write_bytes(folder_ / "x.safetensors", bytes);
    return SafetensorsFile::open(folder_ / "x.safetensors");
  }
  // Refused as unreadable, naming the file and what to do, with these words.
  void refused(const std::string& bytes, const std::string& words) {
    const Caught caught = error_of([&] { open(bytes); });
    EXPECT_EQ(caught.code, ErrorCode::io) << caught.text;
    EXPECT_HAS(caught.text, words);
    EXPECT_HAS(caught.text, folder_ / "x.safetensors");
    EXPECT_HAS(caught.text, "copy, download or write it again");
  }
  void refused_header(const std::string& json, const std::string& words, size_t data = 0) {
    refused(safetensors_bytes(json, data), words);
  }

  TempFolder folder_;
};

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}
std::string header(const std::string& inside) { return "{" + inside + "}"; }

TEST_F(SafetensorsRead, a_file_without_a_whole_length_is_refused) {
  refused("", "it has 0 bytes, too few for the header's length");
  refused(std::string(7, '\0'), "it has 7 bytes");
}

TEST_F(SafetensorsRead, an_empty_header_is_no_json) { refused_header("", "the header is not JSON"); }

TEST_F(SafetensorsRead, a_header_length_above_the_limit_is_refused_before_anything_is_read) {
  refused(little_endian(uint64_t{1} << 63) + "{}", "above the limit of 100000000");
  refused(little_endian(100'000'001) + "{}", "above the limit of 100000000");
  refused(little_endian(~uint64_t{0}) + "{}", "above the limit of 100000000");
}

TEST_F(SafetensorsRead, a_header_longer_than_the_file_is_refused) {
  refused(little_endian(100) + "{}", "the header would end at byte 108, the file ends at byte 10");
  refused(little_endian(100'000'000) + "{}", "the header would end at byte 100000008");
}

TEST_F(SafetensorsRead, a_file_may_hold_no_tensor) { EXPECT_TRUE(open(safetensors_bytes("{}")).names().empty()); }

TEST_F(SafetensorsRead, white_space_around_the_header_is_accepted) {
  EXPECT_TRUE(open(safetensors_bytes("{}\r \t\n")).names().empty());
  EXPECT_TRUE(open(safetensors_bytes(" \n\t\r{}")).names().empty());
}

TEST_F(SafetensorsRead, nul_padding_and_a_byte_order_mark_are_refused) {
  refused_header(std::string("{}\0\0", 4), "a NUL at byte 10; only spaces may pad it");
  refused_header(std::string("\0{}", 3), "a NUL at byte 8");
  refused_header("\xEF\xBB\xBF{}", "byte-order mark");
}

TEST_F(SafetensorsRead, a_header_that_is_not_utf8_is_refused) {
  refused_header(header(tensor("a\xFF", "U8", "[0]", "[0,0]")), "the header is not UTF-8 at byte 11");
  refused_header(header(tensor("\xC0\x80", "U8", "[0]", "[0,0]")), "the header is not UTF-8");      // overlong
  refused_header(header(tensor("\xED\xA0\x80", "U8", "[0]", "[0,0]")), "the header is not UTF-8");  // surrogate
  refused_header(header(tensor("\xF4\x90\x80\x80", "U8", "[0]", "[0,0]")), "the header is not UTF-8");
  refused_header("{}\xE2\x82", "the header is not UTF-8 at byte 10");  // cut short
  EXPECT_TRUE(open(safetensors_bytes(header(tensor("größe 試", "U8", "[0]", "[0,0]")))).contains("größe 試"));
}

TEST_F(SafetensorsRead, the_data_end_exactly_where_the_file_ends) {
  const std::string json = header(tensor("a", "F32", "[2]", "[0,8]"));
  refused_header(json, ": 1 bytes too many", 9);
  refused_header(json, ": 2 bytes are missing", 6);
  refused_header("{}", "1 bytes too many", 1);
}

TEST_F(SafetensorsRead, holes_and_overlaps_are_refused) {
  const auto two = [](const std::string& a, const std::string& b) {
    return header(tensor("a", "U8", "[1]", a) + "," + tensor("b", "U8", "[1]", b));
  };
  refused_header(two("[0,1]", "[2,3]"), "tensor \"b\" leaves a hole behind the tensor before it", 3);
  refused_header(header(tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[1,3]")),
                 "tensor \"b\" overlaps the tensor before it", 3);
  refused_header(header(tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[2]", "[0,2]")), "overlaps", 2);
  refused_header(header(tensor("a", "U8", "[1]", "[1,2]")), "expected to begin at 0", 2);
  refused_header(header(tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("b", "U8", "[1]", "[1,0]")),
                 "ends before it begins", 1);
  refused_header(header(tensor("a", "U8", "[1]", "[18446744073709551615,0]")), "ends before it begins");
}

TEST_F(SafetensorsRead, a_size_that_overflows_is_refused) {
  refused_header(header(tensor("a", "U8", "[2,18446744073709551614]", "[0,4]")), "tensor \"a\": its size overflows", 4);
  refused_header(header(tensor("a", "U8", "[4611686018427387904,8]", "[0,0]")), "its size overflows 64 bits");
  refused_header(header(tensor("a", "F64", "[4611686018427387904]", "[0,0]")), "its size overflows 64 bits");
  refused_header(header(tensor("a", "U8", "[18446744073709551615,2,0]", "[0,0]")), "its size overflows 64 bits");
}

TEST_F(SafetensorsRead, empty_tensors_and_scalars_are_tensors) {
  const SafetensorsFile empty = open(safetensors_bytes(header(tensor("a", "F32", "[2,0]", "[0,0]"))));
  EXPECT_EQ(empty.tensor("a").sizes(), (std::vector<int64_t>{2, 0}));
  const SafetensorsFile scalar = open(safetensors_bytes(header(tensor("a", "F32", "[]", "[0,4]")), 4));
  EXPECT_EQ(scalar.tensor("a").dim(), 0);
  EXPECT_EQ(scalar.tensor("a").item<float>(), 0.0f);
}

TEST_F(SafetensorsRead, sub_byte_kinds_fill_whole_bytes_and_are_not_handed_out) {
  refused_header(header(tensor("a", "F4", "[3]", "[0,2]")), "12 bits of F4 are not a whole number of bytes", 2);
  const SafetensorsFile file = open(safetensors_bytes(header(tensor("a", "F6_E2M3", "[4]", "[0,3]")), 3));
  const Caught caught = error_of([&] { file.tensor("a"); });
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_HAS(caught.text, "tensor \"a\" is of dtype F6_E2M3, which cannot be used here");
}

TEST_F(SafetensorsRead, a_size_that_does_not_fit_shape_and_dtype_is_refused) {
  refused_header(header(tensor("a", "F32", "[3]", "[0,8]")), "has 8 bytes at byte", 8);
}

TEST_F(SafetensorsRead, shapes_are_non_negative_integers) {
  for (const char* shape :
       {"[2.0]", "[-1]", "[-0]", "[2e0]", "[18446744073709551616]", "[null]", "[\"2\"]", "[[2]]", "2"}) {
    refused_header(header(tensor("a", "U8", shape, "[0,2]")),
                   "tensor \"a\": shape must be an array of non-negative integers", 2);
  }
}

TEST_F(SafetensorsRead, data_offsets_are_two_integers) {
  for (const char* offsets : {"[]", "[0]", "[0,2,2]"}) {
    refused_header(header(tensor("a", "U8", "[2]", offsets)), "data_offsets must be two integers", 2);
  }
  refused_header(header(tensor("a", "U8", "[2]", "{}")), "data_offsets must be an array", 2);
}

TEST_F(SafetensorsRead, unknown_dtypes_are_refused_by_name) {
  refused_header(header(tensor("a", "f32", "[1]", "[0,4]")), "tensor \"a\": unknown dtype \"f32\"", 4);
  refused_header(header(tensor("a", "F128", "[1]", "[0,16]")), "unknown dtype \"F128\"", 16);
}

TEST_F(SafetensorsRead, names_may_stand_in_any_order) {
  const SafetensorsFile file =
      open(safetensors_bytes(header(tensor("b", "U8", "[2]", "[1,3]") + "," + tensor("a", "U8", "[1]", "[0,1]")), 3));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(file.data_bytes(), 3u);
}

TEST_F(SafetensorsRead, metadata_are_strings) {
  const SafetensorsFile file = open(safetensors_bytes(R"({"__metadata__":{"format":"pt","a":"b"}})"));
  EXPECT_EQ(file.metadata(), (std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"format", "pt"}}));
  EXPECT_TRUE(open(safetensors_bytes(R"({"__metadata__":{}})")).metadata().empty());
  refused_header(R"({"__metadata__":{"a":1}})", "__metadata__ key \"a\" must be a string, found a number");
  refused_header(R"({"__metadata__":null})", "__metadata__ must be an object of strings");
  refused_header(R"({"__metadata__":{"a":"1","a":"2"}})", "__metadata__ has the key \"a\" twice");
  refused_header(R"({"__metadata__":{},"__metadata__":{}})", "duplicate tensor name \"__metadata__\"");
}

TEST_F(SafetensorsRead, a_duplicate_name_is_refused_where_the_reference_takes_the_last) {
  refused_header(header(tensor("a", "U8", "[0]", "[0,0]") + "," + tensor("a", "U8", "[2]", "[0,2]")),
                 "duplicate tensor name \"a\"", 2);
  refused_header(header(tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("\\u0061", "U8", "[2]", "[0,2]")),
                 "duplicate tensor name \"a\"", 2);
}

TEST_F(SafetensorsRead, what_the_reference_passes_silently_is_refused) {
  refused_header(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", "tensor \"a\": unknown field \"x\"");
  refused_header(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", "dtype is given twice");
  refused_header(R"({"a":{"dtype":"U8","shape":[0]}})", "tensor \"a\": data_offsets is missing");
  refused_header(R"({"a":["F32",[1],[0,4]]})", "tensor \"a\": must be an object", 4);
  refused_header(header(tensor("a\\u0000b", "U8", "[0]", "[0,0]")), "a tensor name has a control character");
  refused_header(header(tensor("a\\n", "U8", "[0]", "[0,0]")), "a tensor name has a control character");
  refused_header(header(tensor("\\udc00", "U8", "[0]", "[0,0]")), "a tensor name is not valid Unicode");
  refused_header(header(tensor(std::string(4097, 'a'), "U8", "[0]", "[0,0]")), "a tensor name has 4097 bytes");
}

TEST_F(SafetensorsRead, deep_nesting_is_refused_without_a_stack_overflow) {
  const std::string deep(5000, '[');
  refused_header(deep, "the header is not a JSON object");
  refused_header("{\"a\":" + deep, "tensor \"a\": must be an object");
  refused_header("{\"a\":{\"shape\":" + deep, "shape must be an array of non-negative integers");
}

TEST_F(SafetensorsRead, one_strict_json_object_is_the_whole_header) {
  for (const char* json : {"{}{}", "{} x", "{,}", "{}//", "/**/{}", "{", "{\"a\"}", "[]", "null", "1"}) {
    refused_header(json, "the header is not");
  }
  refused_header("{" + tensor("a", "U8", "[0]", "[0,0]") + ",}", "the header is not JSON");
}

TEST_F(SafetensorsRead, a_missing_file_and_a_folder_are_told_apart) {
  const Caught missing = error_of([&] { SafetensorsFile::open(folder_ / "none.safetensors"); });
  EXPECT_EQ(missing.code, ErrorCode::config);
  EXPECT_HAS(missing.text, "none.safetensors: cannot be opened: No such file or directory");
  EXPECT_HAS(error_of([&] { SafetensorsFile::open(folder_.path()); }).text,
             "is a folder; a safetensors file was wanted");
  const std::string pipe = folder_ / "pipe.safetensors";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Caught waited = error_of([&] { SafetensorsFile::open(pipe); });
  EXPECT_EQ(waited.code, ErrorCode::config);
  EXPECT_HAS(waited.text, "pipe.safetensors: is a pipe; a safetensors file was wanted");
  EXPECT_HAS(error_of([&] { SafetensorsFile::open("/dev/zero"); }).text, "is a device");
}

TEST_F(SafetensorsRead, a_golden_file_cut_at_any_place_is_refused) {
  const std::string whole = read_bytes(golden("gpt2_tiny/batches.safetensors"));
  ASSERT_GT(whole.size(), 1000u);
  for (const size_t size :
       {size_t{0}, size_t{5}, size_t{8}, size_t{40}, size_t{88}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_EQ(error_of([&] { open(whole.substr(0, size)); }).code, ErrorCode::io) << size;
  }
  EXPECT_EQ(open(whole).shape("tokens"), (std::vector<int64_t>{20, 1, 4, 33}));
}

TEST_F(SafetensorsRead, a_misaligned_tensor_is_read_like_others_and_writing_to_it_changes_no_file) {
  const std::string a = tensor("a", "U8", "[1]", "[0,1]"), b = tensor("b", "F32", "[2]", "[1,9]");
  const float values[] = {1.5f, -2.0f};
  std::string bytes = safetensors_bytes(header(a + "," + b), 1);
  bytes.append(reinterpret_cast<const char*>(values), 8);
  at::Tensor values_of_a;
  {
    const SafetensorsFile file = open(bytes);
    EXPECT_EQ(file.tensor("b")[1].item<float>(), -2.0f);
    values_of_a = file.tensor("a");
  }
  values_of_a.fill_(7);
  EXPECT_EQ(values_of_a.item<uint8_t>(), 7);
  EXPECT_EQ(read_bytes(folder_ / "x.safetensors"), bytes);
}

TEST_F(SafetensorsRead, a_file_that_is_cut_short_after_it_was_opened_is_an_error) {
  const SafetensorsFile file = open(safetensors_bytes(header(tensor("a", "U8", "[4096]", "[0,4096]")), 4096));
  std::filesystem::resize_file(folder_ / "x.safetensors", 200);
  const Caught caught = error_of([&] { file.tensor("a"); });
  EXPECT_EQ(caught.code, ErrorCode::io);
  EXPECT_HAS(caught.text, "x.safetensors: was cut short while it was in use");
  EXPECT_HAS(caught.text, "has 200 now; tensor \"a\"");
}

TEST_F(SafetensorsRead, rows_are_a_slice_of_the_first_dimension) {
  const SafetensorsFile file = SafetensorsFile::open(golden("gpt2_tiny/batches.safetensors"));
  EXPECT_TRUE(file.rows("tokens", 3, 2).equal(file.tensor("tokens").narrow(0, 3, 2)));
  const Caught caught = error_of([&] { file.rows("tokens", 19, 2); });
  EXPECT_EQ(caught.code, ErrorCode::config);
  EXPECT_HAS(caught.text, "has 20 rows; rows 19 to 21 were wanted");
  EXPECT_HAS(error_of([&] { file.tensor("token"); }).text, "has no tensor \"token\"");
}

}  // namespace
}  // namespace drivetrain
