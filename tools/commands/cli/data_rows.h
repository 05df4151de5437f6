// The options of `drivetrain data`, as cli/option_rows.h has those of the other commands.
#pragma once

#include "cli/option_rows.h"

namespace drivetrain::cli::rows {

inline constexpr Option kTokenizer = folder(
    "--tokenizer", "FOLDER",
    "folder or file of a tokenizer (tokenizer.json, vocabulary and merges, tokenizer.model), or the name of one");

inline constexpr Option kDataPrepare[] = {
    file("--input", "GLOB", "files, a folder or a pattern; may be repeated").many().must(),
    kTokenizer.must(),
    file("--output", "PREFIX", "where to: PREFIX.bin has the tokens, PREFIX.idx their places").must(),
    one_of("--format", "FORMAT", "auto|jsonl|text",
           "jsonl has a document per line, text one per file; auto takes .jsonl, .jsonlines, .ndjson and .json as "
           "jsonl, all else as text")
        .by_default("auto"),
    text("--json-key", "KEY", "where the text is in a line of JSON; a.b is the key b of the object a")
        .by_default("text"),
    flag("--append-eod", "end every document with the token that separates documents"),
    text("--eod", "TOKEN", "that token, where the tokenizer's files do not say it; implies --append-eod"),
    flag("--no-bos",
         "leave out what the tokenizer's files put in front of every text; else each document begins with it"),
    flag("--skip-broken", "leave out lines that are no JSON or have no text, and count them"),
    whole("--threads", "threads that encode; default: all cores"),
    kPluginPath};

inline constexpr Option kDataShow[] = {
    folder("--tokenizer", "FOLDER", "show the document as text: folder or file of a tokenizer, or the name of one"),
    whole("--document", "N", "show all of this document, from 0; default: the begin of the first"),
    file("--histogram", "FILE", "draw the lengths of documents into this SVG file"), kJson, kPluginPath};

inline constexpr Option kDataVerify[] = {whole("--vocab-size", "N", "every id must be below it", 1)};

}  // namespace drivetrain::cli::rows
