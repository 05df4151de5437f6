// The options of `drivetrain data`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kTokenizer{
    .name = "--tokenizer",
    .value = "FOLDER",
    .help =
        "folder or file of a tokenizer (tokenizer.json, vocabulary and merges, tokenizer.model), or the name of one",
    .takes = Takes::folder};
constexpr Option required(Option option) {
  option.required = true;
  return option;
}

inline constexpr Option kDataPrepare[] = {
    {.name = "--input",
     .value = "GLOB",
     .help = "files, a folder or a pattern; may be repeated",
     .takes = Takes::file,
     .repeats = true,
     .required = true},
    required(kTokenizer),
    {.name = "--output",
     .value = "PREFIX",
     .help = "where to: PREFIX.bin has the tokens, PREFIX.idx their places",
     .takes = Takes::file,
     .required = true},
    {.name = "--format",
     .value = "FORMAT",
     .help = "jsonl has a document per line, text one per file; auto takes .jsonl, .jsonlines, .ndjson and .json as "
             "jsonl, all else as text",
     .takes = Takes::one_of,
     .choices = "auto|jsonl|text",
     .otherwise = "auto"},
    {.name = "--json-key",
     .value = "KEY",
     .help = "where the text is in a line of JSON; a.b is the key b of the object a",
     .takes = Takes::text,
     .otherwise = "text"},
    {.name = "--append-eod", .help = "end every document with the token that separates documents"},
    {.name = "--eod",
     .value = "TOKEN",
     .help = "that token, where the tokenizer's files do not say it; implies --append-eod",
     .takes = Takes::text},
    {.name = "--no-bos",
     .help = "leave out what the tokenizer's files put in front of every text; else each document begins with it"},
    {.name = "--skip-broken", .help = "leave out lines that are no JSON or have no text, and count them"},
    whole("--threads", "threads that encode; default: all cores"),
    kPluginPath};

inline constexpr Option kDataShow[] = {
    {.name = "--tokenizer",
     .value = "FOLDER",
     .help = "show the document as text: folder or file of a tokenizer, or the name of one",
     .takes = Takes::folder},
    {.name = "--document",
     .value = "N",
     .help = "show all of this document, from 0; default: the begin of the first",
     .takes = Takes::whole},
    {.name = "--histogram",
     .value = "FILE",
     .help = "draw the lengths of documents into this SVG file",
     .takes = Takes::file},
    kJson,
    kPluginPath};

inline constexpr Option kDataVerify[] = {
    {.name = "--vocab-size", .value = "N", .help = "every id must be below it", .takes = Takes::whole, .least = 1}};

}  // namespace drivetrain::cli::rows
