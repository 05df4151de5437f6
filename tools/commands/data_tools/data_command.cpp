// `drivetrain data`: texts into token files, and what is in these.
#include <fstream>
#include <iostream>

#include <drivetrain/toolkit/host/processors.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "data_tools/prepare.h"
#include "data_tools/show.h"
#include "rendezvous/rendezvous.h"
#include "shared/commands.h"

namespace drivetrain {
namespace {

// What opening a tokenizer needs, as long as it is used.
struct TokenizerPlace {
  explicit TokenizerPlace(const cli::Arguments& arguments)
      : registry(search_path({}, arguments.all("--plugin-path"))),
        log(make_console_log(console_settings(0))),
        store(make_local_store()),
        services{*log, *store},
        readers(registry, services) {}
  const Registry registry;
  const std::shared_ptr<Log> log;
  const std::shared_ptr<Store> store;
  const Services services;
  const TokenizerReaders readers;
};

// The table of commands lets three words through: auto, jsonl and text.
TextFormat text_format(const std::string& word) {
  if (word == "auto") return TextFormat::automatic;
  return word.starts_with("json") ? TextFormat::json_lines : TextFormat::text;
}

std::string begin_text(const OpenedTokenizer& opened) {
  std::string tokens;
  opened.tokenizer->decode(opened.facts.prefix, tokens);
  std::string ids;
  for (const int32_t id : opened.facts.prefix) ids += concat(ids.empty() ? "" : ", ", id);
  return concat("every document begins with token ", ids, " (", printable(tokens),
                "), as the tokenizer's files say; --no-bos leaves it out");
}

int prepare_command(const cli::Arguments& arguments) {
  const TokenizerPlace place(arguments);
  PrepareRequest request;
  request.inputs = arguments.all("--input");
  request.output = arguments.text("--output");
  request.format = text_format(arguments.text("--format"));
  request.json_key = arguments.text("--json-key"), request.json_key_given = arguments.has("--json-key");
  request.append_eod = arguments.has("--append-eod") || arguments.has("--eod");
  request.skip_broken = arguments.has("--skip-broken");
  request.threads = arguments.whole("--threads", processor_share().usable());
  if (request.output.empty() || request.output.ends_with('/'))
    throw fail(ErrorCode::config, "--output: wants a prefix for the names of the files, such as data/wiki");
  const OpenedTokenizer opened = place.readers.open(arguments.text("--tokenizer"));
  if (request.append_eod) request.eod = end_of_document(opened, arguments.text("--eod"));
  if (!arguments.has("--no-bos")) request.begin = opened.facts.prefix;
  if (!opened.facts.prefix.empty())
    place.log->info(request.begin.empty()
                        ? "--no-bos: documents lack what the tokenizer's files put in front of texts, "
                          "and `generate` and `evaluate` begin with"
                        : begin_text(opened));
  const PrepareResult done = prepare(request, opened, *place.log);
  const double rate = static_cast<double>(done.text_bytes - done.skipped_bytes) / 1e6 / done.seconds;
  std::cout << printable(concat(
      request.output, ".bin, .idx: ", done.documents, " documents, ", done.tokens, " tokens of type ", done.type,
      formatted(", %.2f bytes per token", static_cast<double>(done.text_bytes) / static_cast<double>(done.tokens)),
      "\n",
      formatted("%.1f MB in %.1f s: %.1f MB/s with %lld threads",
                static_cast<double>(done.text_bytes - done.skipped_bytes) / 1e6, done.seconds, rate,
                static_cast<long long>(request.threads)),
      done.empty ? concat("; ", done.empty, " empty documents left out") : "",
      done.broken ? concat("; ", done.broken, " broken lines left out") : "", "\n"));
  return 0;
}

void write_picture(const std::string& path, const std::string& svg) {
  std::ofstream file(path, std::ios::binary);
  file << svg << std::flush;
  if (!file) throw fail(ErrorCode::io, path, ": cannot be written");
}

int show_command(const cli::Arguments& arguments) {
  const TokenFile file(arguments.plain().front());
  want_whole_file(file);
  std::optional<TokenizerPlace> place;
  OpenedTokenizer opened;
  if (arguments.has("--tokenizer"))
    place.emplace(arguments), opened = place->readers.open(arguments.text("--tokenizer"));
  const LengthHistogram histogram = length_histogram(file);
  if (arguments.has("--histogram"))
    write_picture(arguments.text("--histogram"),
                  histogram_svg(histogram, concat(file.prefix(), ": ", file.documents(), " documents, ", file.tokens(),
                                                  " tokens")));
  const bool chosen = arguments.has("--document");
  const auto index = static_cast<uint64_t>(arguments.whole("--document", 0));
  if (file.documents() == 0 && !chosen) throw fail(ErrorCode::io, file.prefix(), ": has no document");
  const DocumentSample sample = sample_document(file, index, chosen ? ~uint64_t{0} : 64, opened.tokenizer.get());
  if (arguments.has("--json"))
    std::cout << printable_json(show_value(file, histogram, sample).to_json(2)) << "\n";
  else
    std::cout << printable(show_text(file, histogram, sample));
  return 0;
}

int verify_command(const cli::Arguments& arguments) {
  const TokenFile file(arguments.plain().front());
  const std::vector<std::string> problems = verify_token_file(file, arguments.whole("--vocab-size", 0));
  if (!problems.empty()) throw fail(ErrorCode::io, join(problems, "\n   "));
  std::cout << printable(
      concat(file.prefix(), ": ", file.documents(), " documents, ", file.tokens(), " tokens, whole\n"));
  return 0;
}

}  // namespace

int data_command(const cli::Arguments& arguments) {
  const std::string_view command = arguments.command().name;
  if (command == "data prepare") return prepare_command(arguments);
  if (command == "data show") return show_command(arguments);
  if (command == "data verify") return verify_command(arguments);
  throw fail(ErrorCode::internal, "the program knows command ", command, ", the library does not");
}

}  // namespace drivetrain
