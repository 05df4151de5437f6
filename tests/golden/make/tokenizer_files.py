"""Small tokenizers trained by Hugging Face's tokenizers, laid out as the families that people use, and what that library makes of
difficult texts: tokenizer_files/NAME/ with the files of the tokenizer and cases.json, a list of {"bytes" (hexadecimal), "ids", "decoded"
(hexadecimal, where it is not the text with U+FFFD for what is not UTF-8)}.
"""
import json
import random
import sys

from golden_files import DATA, json_text

REPO = DATA.parents[2]
sys.path.insert(0, str(REPO / "tools/peers"))
import token_corpus  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]


def training_texts():
    draw = random.Random(4)
    return [(REPO / "LICENSE").read_text()] * 4 + list(token_corpus.mixed(draw, 200))


def split(*patterns):
    from tokenizers import Regex, pre_tokenizers
    steps = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(pre_tokenizer, special=(), normalizer=None, size=400, **model):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(training_texts(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def gpt2():
    from tokenizers import pre_tokenizers
    return trained(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])


def llama3():
    from tokenizers import processors
    tokenizer = trained(split(LLAMA3), ["<|begin_of_text|>", "<|end_of_text|>"], ignore_merges=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])
    return tokenizer


def qwen2():
    from tokenizers import AddedToken, normalizers
    tokenizer = trained(split(QWEN2), normalizer=normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([
        AddedToken("<tool>", normalized=False), AddedToken("café", normalized=True), AddedToken("word", single_word=True),
        AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True), AddedToken("<tool>>", normalized=False), AddedToken("  ", normalized=False)])
    return tokenizer


def deepseek():
    return trained(split(*DEEPSEEK), ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])


def o200k():
    return trained(split(O200K), ["<|endoftext|>"])


def digits():
    from tokenizers import Regex, pre_tokenizers
    tokenizer = trained(split(QWEN2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(Regex(r"[^\s]+|\s+"), "removed", invert=True),
        pre_tokenizers.Split("ab", "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    return tokenizer


def with_bytes(normalizer, pre_tokenizer, more=(), merged=()):
    """Characters and byte tokens instead of byte-level characters, as converters make it of SentencePiece's BPE models."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    learned.train_from_iterator(training_texts(), trainers.BpeTrainer(vocab_size=500, limit_alphabet=90, show_progress=False))
    model = json.loads(learned.to_str())["model"]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    further = [("▁", "▁"), *merged]  # as such vocabularies have runs of blanks
    names = list(dict.fromkeys(names + sorted(model["vocab"], key=model["vocab"].get) + ["".join(pair) for pair in further]))
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]] + further
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges, unk_token="<unk>",
                                     fuse_unk=True, byte_fallback=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens(list(more))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2():
    from tokenizers import normalizers
    return with_bytes(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
                      merged=[("e", "▁")])  # a token across a blank: no place is safe to cut a text


def mistral():
    from tokenizers import AddedToken, pre_tokenizers
    return with_bytes(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
                      [AddedToken("[INST]", normalized=False), AddedToken("word", single_word=True),
                       AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False)])


def gemma():
    """No blank in front, cut nowhere, and runs of line ends and of ▁ as tokens that are found in texts."""
    from tokenizers import AddedToken, normalizers, pre_tokenizers, processors
    tokenizer = with_bytes(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), merged=[("▁", "▁"), ("e", "▁")])
    tokenizer.add_special_tokens(["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))])
    return tokenizer


def phi3():
    """Llama 2's form with tokens of its own, which take the white space behind them."""
    from tokenizers import AddedToken, normalizers
    tokenizer = with_bytes(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None)
    tokenizer.add_special_tokens(["<|endoftext|>"] + [
        AddedToken(f"<|{name}|>", rstrip=True, normalized=False) for name in ("assistant", "system", "end", "user")])
    tokenizer.add_tokens([AddedToken("<|marked|>", rstrip=True, normalized=False)])
    return tokenizer


def metaspace():
    from tokenizers import pre_tokenizers
    return with_bytes(None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True))


def texts(added):
    """Texts as bytes: the same for all tokenizers, and around the added tokens of this one."""
    draw = random.Random(7)
    chosen = [t[:50] for t in token_corpus.mixed(draw, 10)] + [t[:16] for t in token_corpus.random_texts(draw, 16)]
    chosen += [t[:14] for t in list(token_corpus.long_runs())[1:38:2]] + ["", " ", "\n", "a", "a" * 99 + " " * 50, "ǆ'S it'ſ DON'T we'LL"]
    chosen += ["e\u0301 cafe\u0301 a\u0323\u030a \u1100\u1161\u11a8 \u212b \ufb01 \u0958 q\u0307\u0323", "1234567 ١٢ ½Ⅷ", "ab cab"]
    broken = [text[:40] for text in list(token_corpus.broken(draw, [t[:50] for t in token_corpus.mixed(draw, 10)]))[:10]]
    around = list(token_corpus.around_tokens(draw, added))
    around = [t[:60] for t in draw.sample(around, min(10 + 4 * len(added), len(around)))]
    return [text.encode() for text in chosen + around] + broken


def write_case(folder, tokenizer):
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    cases = []
    for data in texts(added):
        text = data.decode("utf-8", "replace")
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        cases.append({"bytes": data.hex(), "ids": ids} | ({"decoded": decoded.encode().hex()} if decoded != text else {}))
    write_lines(folder / "cases.json", cases)


SENTENCEPIECE = {
    # As Llama's and Mistral's models are.
    "bpe": {"model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True, "remove_extra_whitespaces": False,
            "split_digits": True, "allow_whitespace_only_pieces": True, "user_defined_symbols": ["[INST]", "▁▁▁", "ab c", "ab"]},
    # Rules for characters, unknown ones, tokens across blanks, which stand at the end of words.
    "rules": {"model_type": "bpe", "split_by_whitespace": False, "treat_whitespace_as_suffix": True, "user_defined_symbols": ["<tool>"]},
    "unused": {"model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True},
    "unigram": {"model_type": "unigram", "user_defined_symbols": ["<tool>", "word", " x"]},
    "char": {"model_type": "char", "hard_vocab_limit": False, "user_defined_symbols": ["<tool>"]},
    "word": {"model_type": "word", "hard_vocab_limit": False, "normalization_rule_name": "identity", "byte_fallback": True},
}
RULES = {"A": "a", "\ufb01": "fi", "\u00ad": "", "\u3000": " ", "\t": " ", "\n": " ", "e\u0301": "é", "½": " 1/2 "}


def unused(model):
    """The model with every third of its pieces of more than one character as unused, by the encoding of Protocol Buffers."""
    made, at, count = b"", 0, 0
    while model[at] == 0x0A:
        piece = model[at + 2:at + 2 + model[at + 1]]
        if piece[1] > 3 and piece[2:5] != b"<0x" and b"\x18" not in piece[2 + piece[1]:]:
            count += 1
            piece += b"\x18\x05" if count % 3 == 0 else b""
        made += bytes([0x0A, len(piece)]) + piece
        at += 2 + model[at + 1]
    return made + model[at:]


def sentencepiece(folder, **options):
    """A small model, and what Python's sentencepiece makes of the texts."""
    import io

    import sentencepiece as library
    folder.mkdir(parents=True, exist_ok=True)
    model, rules = io.BytesIO(), folder / "rules.tsv"
    if "normalization_rule_name" not in options:
        points = lambda text: " ".join(f"{ord(c):X}" for c in text)  # noqa: E731
        rules.write_text("".join(f"{points(old)}\t{points(new)}\n" for old, new in RULES.items()))
        options["normalization_rule_tsv"] = str(rules)
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in training_texts() for line in text.splitlines() if line), model_writer=model,
        **{"vocab_size": 600, "minloglevel": 2, "num_threads": 1, "character_coverage": 0.98} | options)
    rules.unlink(missing_ok=True)
    made = unused(model.getvalue()) if folder.name.endswith("unused") else model.getvalue()
    (folder / "tokenizer.model").write_bytes(made)
    processor = library.SentencePieceProcessor(model_proto=made)
    cases = []
    for data in texts(["<s>", "</s>", *options.get("user_defined_symbols", [])]):
        ids = processor.encode(data.decode("utf-8", "replace"))
        cases.append({"bytes": data.hex(), "ids": ids, "decoded": processor.decode(ids).encode().hex()})
    write_lines(folder / "cases.json", cases)


def write_lines(path, cases):
    path.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


def write_files(folder, name, tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    description = json.loads(tokenizer.to_str())
    if name == "gpt2":
        model = description["model"]
        (folder / "vocab.json").write_text(json.dumps(model["vocab"], separators=(",", ":")))
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
        return
    if name != "llama3":  # the older spelling of merges
        description["model"]["merges"] = [merge if isinstance(merge, str) else " ".join(merge) for merge in description["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(description, ensure_ascii=False, separators=(",", ":")) + "\n")


def make(folder):
    for maker in (gpt2, llama3, qwen2, deepseek, o200k, digits, llama2, mistral, metaspace, gemma, phi3):
        place, tokenizer = folder / "tokenizer_files" / maker.__name__, maker()
        write_files(place, maker.__name__, tokenizer)
        write_case(place, tokenizer)
    sentencepiece(folder / "tokenizer_files/sentencepiece", normalization_rule_name="identity", byte_fallback=True)
    for name, options in SENTENCEPIECE.items():
        sentencepiece(folder / f"tokenizer_files/sentencepiece_{name}", **options)
    config = {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|end_of_text|>", "lstrip": False}, "pad_token": None}
    (folder / "tokenizer_files/llama3/tokenizer_config.json").write_text(json_text(config) + "\n")
