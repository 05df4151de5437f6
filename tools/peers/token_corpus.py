"""A mixed corpus for comparing tokenizers, the same in every run: texts as bytes, some of which are not UTF-8."""
import pathlib
import random
import unicodedata

EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "❤️", "🧑🏿‍🚀", "☃️", "1️⃣"]
WORDS = ("the of and Haus straße café naïve don't DON'T it's IT'S we'll WE'LL I'm they've you'd 's 'S 'ſ x's' ''s '' l'été O'Neill "
         "CamelCaseWord snake_case_word ALLCAPS http://example.com/a?b=c&d=%20 user@example.org 3.14159 1,000,000 12345678 007 ½ ² "
         "Ⅷ ٣٤ १२३ 𝟘𝟙 привет мир Ελλάδα שלום עולם مرحبا بالعالم हिन्दी भाषा ภาษาไทย 日本語テキスト 中文字符串 한국어 텍스트 ༀ མཐའ "
         "አማርኛ ქართული Tiếng Việt e\u0301 a\u030a\u0323 \u1100\u1161\u11a8 ǆ ﬁ ＡＢＣ _ __ -- --- ... … “quoted” «guillemets» #!/bin/sh "
         "$x = @y[0]; {{}} [[]] <|im_start|> <|endoftext|> <s> </s> \\n \\u0041 \t \r\n \u00a0 \u3000 \u200b \u200d \u2028 \u0085").split(" ")
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "        ", "\u00a0", "\u3000", " \u2003", "\x0b", "\x0c", "\x85", "\u180e"]


def all_of_unicode():
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    yield from ("".join(points[at:at + 997]) for at in range(0, len(points), 997))
    yield from (" ".join(points[at:at + 501]) for at in range(0, len(points), 501))
    yield from ("a\u0301".join(points[at:at + 501]) for at in range(0, 0x3100, 501))
    # Decomposed, as normalisation meets it.
    yield from (unicodedata.normalize("NFD", "".join(points[at:at + 997])) for at in range(0, 0x30000, 997))


def random_texts(draw, count):
    pools = [range(0x20, 0x7F), range(0x20, 0x250), range(0x300, 0x370), range(0x370, 0x600), range(0x900, 0xE00), range(0x2000, 0x2100),
             range(0x3040, 0x3100), range(0x4E00, 0x9FA6), range(0xAC00, 0xD7A4), range(0x1F300, 0x1FAFF)]
    for _ in range(count):
        pool = draw.choice(pools)
        yield "".join(chr(draw.choice(pool)) if draw.random() < 0.8 else draw.choice(SPACES + EMOJI + WORDS)
                      for _ in range(draw.randrange(1, 200)))


def mixed(draw, count):
    for _ in range(count):
        yield "".join(draw.choice(WORDS if draw.random() < 0.9 else EMOJI) + draw.choice(SPACES if draw.random() < 0.3 else [" ", ""])
                      for _ in range(draw.randrange(1, 300)))


def long_runs():
    for letter in ["a", "A", " ", "\n", "\t", "0", "7", "-", "=", "é", "中", "あ", "😀", "\u0301", "'", "'s", "ab", " a", "\r\n", "\u3000"]:
        yield letter * 5000
        yield "x" + letter * 333 + "y"
    yield " " * 70000
    yield "aB1 " * 20000


def around_tokens(draw, added):
    """Every added token alone, in words, in white space, cut short, twice, and many in a row."""
    for token in added:
        yield from (token, "a" + token + "b", "  " + token + " \n x", token + token, token[:-1], token[1:], token.upper(),
                    "é" + token + "中", draw.choice(WORDS) + token + draw.choice(WORDS) + token[:3])
    yield "".join(added)
    yield " ".join(added)
    for _ in range(200 if added else 0):
        yield "".join(draw.choice([draw.choice(added), draw.choice(WORDS), draw.choice(SPACES)]) for _ in range(60))


def broken(draw, texts):
    """Bytes taken out, put in and changed, and all pairs of bytes."""
    for text in texts:
        data = bytearray(text.encode())
        for _ in range(1 + len(data) // 20):
            at = draw.randrange(len(data) + 1)
            what = draw.randrange(3)
            if what == 0:
                del data[at:at + draw.randrange(1, 4)]
            elif what == 1:
                data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 4)))
            else:
                data[at:at + 1] = bytes([draw.choice([0x80, 0xBF, 0xC0, 0xC1, 0xE0, 0xED, 0xA0, 0xEF, 0xF0, 0xF4, 0x90, 0xF5, 0xFF])])
        yield bytes(data)
    for first in range(256):
        yield b" ".join(b"a" + bytes([first, second]) + b"b" for second in range(256))


def files(folders, most_bytes):
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".py", ".md", ".txt", ".json", ".cmake", ".cu", ""} and path.is_file():
                data = path.read_bytes()
                if 0 < len(data) <= 300_000 and most_bytes > 0:
                    most_bytes -= len(data)
                    yield data


def corpus(added, folders, most_bytes=30_000_000):
    """Pairs (kind, text as bytes)."""
    draw = random.Random(15)
    kinds = {"all of Unicode": all_of_unicode(), "random characters": random_texts(draw, 3000), "mixed words": mixed(draw, 3000),
             "long runs": long_runs(), "added tokens": around_tokens(draw, added)}
    for kind, texts in kinds.items():
        yield from ((kind, text.encode()) for text in texts)
    yield from (("broken UTF-8", text) for text in broken(draw, list(mixed(draw, 1500)) + list(random_texts(draw, 1500))))
    yield from (("files", data) for data in files(folders, most_bytes))
