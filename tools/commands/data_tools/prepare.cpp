#include "data_tools/prepare.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/seconds_since.h>
#include <drivetrain/toolkit/text/json_line.h>

#include "data_tools/json_line.h"
#include "data_tools/prepare_progress.h"
#include "data_tools/rate_line.h"
#include "data_tools/token_writer.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;
namespace tbb = oneapi::tbb;
using Clock = std::chrono::steady_clock;

// A block on its way: texts in, tokens out.
struct Work {
  TextBlock block;
  std::vector<int32_t> ids;
  std::vector<size_t> ends;  // in ids, of each document
  uint64_t bytes = 0;        // of the block
  uint64_t empty = 0, broken = 0;
  std::string problem;  // of the first broken line, with its place
};

// Encodes the documents of a block. Called by many threads at once.
class BlockEncoder {
 public:
  BlockEncoder(const PrepareRequest& request, const Tokenizer& tokenizer) : request_(request), tokenizer_(tokenizer) {}

  void run(Work& work) const {
    if (!work.block.input->json_lines)
      add(work.block.bytes, work);
    else
      lines(work);
    work.block.bytes = {};
  }

 private:
  void lines(Work& work) const {
    const std::string_view bytes = work.block.bytes;
    uint64_t number = work.block.first_line;
    std::string text;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t end = std::min(bytes.find('\n', begin), bytes.size());
      const std::string_view line = bytes.substr(begin, end - begin);
      begin = end + 1, ++number;
      if (is_blank_line(line)) continue;
      const std::string wrong = read_json_line(line, request_.json_key, text);
      if (wrong.empty()) {
        add(text, work);
        continue;
      }
      ++work.broken;
      if (request_.skip_broken) continue;
      work.problem = concat(work.block.input->path, ":", number, ": ", wrong);
      return;  // nothing behind it is wanted
    }
  }
  void add(std::string_view text, Work& work) const {
    const size_t before = work.ids.size(), begun = before + request_.begin.size();
    work.ids.insert(work.ids.end(), request_.begin.begin(), request_.begin.end());
    tokenizer_.encode(text, work.ids);
    if (work.ids.size() == begun) {
      work.ids.resize(before);
      ++work.empty;
      return;
    }
    if (request_.append_eod) work.ids.push_back(request_.eod);
    work.ends.push_back(work.ids.size());
  }

  const PrepareRequest& request_;
  const Tokenizer& tokenizer_;
};

// The end of the pipeline: one block at a time, in the order of the inputs.
class Output {
 public:
  Output(const PrepareRequest& request, Value identity, PrepareProgress from, const TokenType& type, int64_t vocab_size)
      : request_(request),
        identity_(std::move(identity)),
        progress_(from),
        writer_(request.output, type, from.counts.documents, from.counts.tokens),
        vocab_size_(vocab_size) {}

  void take(const Work& work) {
    size_t begin = 0;
    for (const size_t end : work.ends) {
      const std::span<const int32_t> document(work.ids.data() + begin, end - begin);
      check(document, work);
      writer_.add(document);
      begin = end;
    }
    progress_.counts.empty += work.empty, progress_.counts.broken += work.broken;
    progress_.counts.text_bytes += work.bytes;
    if (!work.problem.empty()) {
      --progress_.counts.broken;
      throw fail(ErrorCode::io, work.problem, "\n   mend the line, or leave such lines out: --skip-broken");
    }
    progress_.place = work.block.after;
    if (seconds_since(saved_) > request_.seconds_between_saves) save();
  }
  void finish() {
    writer_.write_index();
    progress_.complete = true;
    save();
  }
  const PrepareProgress& progress() {
    progress_.counts.documents = writer_.documents(), progress_.counts.tokens = writer_.tokens();
    return progress_;
  }

 private:
  void save() {
    writer_.sync();
    save_progress(request_.output, identity_, progress());
    saved_ = Clock::now();
  }
  void check(std::span<const int32_t> document, const Work& work) const {
    for (const int32_t id : document)
      if (id < 0 || id >= vocab_size_)
        throw fail(ErrorCode::plugin, work.block.input->path, ": the tokenizer gave the id ", id, ", and has ",
                   vocab_size_);
  }

  const PrepareRequest& request_;
  const Value identity_;
  PrepareProgress progress_;
  TokenWriter writer_;
  const int64_t vocab_size_;
  Clock::time_point saved_ = Clock::now();
};

Value identity_of(const PrepareRequest& request, const std::vector<TextInput>& inputs, const OpenedTokenizer& opened,
                  const TokenType& type) {
  Value identity = Value::object();
  identity.set("inputs", inputs_identity(inputs));
  identity.set("tokenizer", tokenizer_identity(opened));
  identity.set("format", text_format_words(request.format));
  identity.set("json_key", request.json_key);
  Value::Array begin;
  for (const int32_t id : request.begin) begin.emplace_back(int64_t{id});
  identity.set("begin", std::move(begin));
  identity.set("eod", request.append_eod ? Value(int64_t{request.eod}) : Value());
  identity.set("type", type.name);
  return identity;
}

void refuse_finished(const std::string& prefix) {
  std::error_code unknown;
  if (fs::exists(progress_path(prefix), unknown)) return;
  for (const std::string& path : {bin_path(prefix), idx_path(prefix)})
    if (fs::exists(path, unknown))
      throw fail(ErrorCode::config, "--output ", prefix, ": ", path,
                 " is there already and is not overwritten\n   give another prefix, or remove it");
}

// One round of the pipeline: it ends with the inputs, or where the next text would be too much for the memory. It ends
// rather than waits, because a thread that waits for the others may be the only one. True at the end of the inputs.
bool run_round(const PrepareRequest& request, const BlockEncoder& encoder, TextReader& reader, Output& output,
               RateLine& line) {
  using Item = std::shared_ptr<Work>;
  std::atomic<uint64_t> in_flight = 0;
  bool ended = false;
  const auto read = [&](tbb::flow_control& control) -> Item {
    auto work = std::make_shared<Work>();
    const uint64_t held = in_flight;
    const bool full = held > 0 && held + reader.next_bytes() > request.bytes_in_flight;
    if (!full && reader.next(work->block)) {
      in_flight += work->bytes = work->block.bytes.size();
      return work;
    }
    ended = !full;
    control.stop();
    return nullptr;
  };
  const auto encode = [&](const Item& work) { return encoder.run(*work), work; };
  const auto write = [&](const Item& work) {
    output.take(*work);
    in_flight -= work->bytes;
    line.show(output.progress());
  };
  tbb::parallel_pipeline(3 * static_cast<size_t>(request.threads),
                         tbb::make_filter<void, Item>(tbb::filter_mode::serial_in_order, read) &
                             tbb::make_filter<Item, Item>(tbb::filter_mode::parallel, encode) &
                             tbb::make_filter<Item, void>(tbb::filter_mode::serial_in_order, write));
  return ended;
}

void run_pipeline(const PrepareRequest& request, const Tokenizer& tokenizer, TextReader& reader, Output& output,
                  RateLine& line) {
  const BlockEncoder encoder(request, tokenizer);
  const auto threads = static_cast<size_t>(request.threads);
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena arena(static_cast<int>(threads));
  arena.execute([&] {
    while (!run_round(request, encoder, reader, output, line)) {
    }
  });
}

// An option for lines of JSON without such an input is a mistake: the inputs are not read as somebody thinks.
void refuse_unused_options(const PrepareRequest& request, const std::vector<TextInput>& inputs) {
  const char* option = request.json_key_given ? "--json-key" : request.skip_broken ? "--skip-broken" : nullptr;
  const auto has_lines = [](const TextInput& input) { return input.json_lines; };
  if (!option || std::any_of(inputs.begin(), inputs.end(), has_lines)) return;
  throw fail(ErrorCode::config, option, ": is for lines of JSON, and every input is one text, ", inputs[0].path,
             " the first\n   give --format jsonl if each of their lines is a document, else leave ", option, " out");
}

}  // namespace

PrepareResult prepare(const PrepareRequest& request, const OpenedTokenizer& opened, Log& log) {
  const Clock::time_point begin = Clock::now();
  const std::vector<TextInput> inputs = list_inputs(request.inputs, request.format, request.output, log);
  refuse_unused_options(request, inputs);
  const TokenType& type = token_type_for(opened.facts.vocab_size);
  const Value identity = identity_of(request, inputs, opened, type);
  refuse_finished(request.output);
  make_folders(system_file_calls(), parent_folder(request.output));
  const auto before = load_progress(request.output, identity, inputs);
  PrepareProgress done = before.value_or(PrepareProgress{});
  const uint64_t skipped = bytes_before(inputs, done.place);
  if (before)
    log.info(concat("going on where the last preparation stopped, after ", done.counts.documents, " documents"));
  if (!done.complete) {
    Output output(request, identity, done, type, opened.facts.vocab_size);
    TextReader reader(inputs, done.place);
    RateLine line(inputs, skipped, log);
    run_pipeline(request, *opened.tokenizer, reader, output, line);
    if (output.progress().counts.documents == 0)
      throw fail(ErrorCode::config, "data prepare: the inputs hold no document: ", output.progress().counts.empty,
                 " empty ones, ", output.progress().counts.broken, " broken lines");
    output.finish();
    done = output.progress();
  }
  TokenWriter::give_names(request.output);
  system_file_calls().remove_file(progress_path(request.output));
  PrepareResult result = done.counts;
  result.skipped_bytes = before ? before->counts.text_bytes : 0;
  result.seconds = seconds_since(begin);
  result.type = type.name;
  return result;
}

}  // namespace drivetrain
