"""Writes unicode_table.inc, what Hugging Face's tokenizers knows of every code point: its general category, and whether NFC may change
a text because of it. Asks the library itself, since its regular expressions and its NFC follow different versions of Unicode.

    python3 make_unicode_table.py > unicode_table.inc       with `tokenizers` 0.23 importable
"""
import itertools
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co".split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ#$%&"  # category without the flag; with it, the letter of LETTERS_NFC
LETTERS_NFC = "abcdefghijklmnopqrstuvwxyz'()*"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def categories():
    text = "".join(map(chr, CODE_POINTS))
    found = [0] * 0x110000
    found[0xD800:0xE000] = [CATEGORIES.index("Cs")] * 0x800
    for index, name in enumerate(CATEGORIES):
        if name == "Cs":
            continue
        only = pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed", invert=True)
        for piece, _ in only.pre_tokenize_str(text):
            for character in piece:
                found[ord(character)] = index
    return found


def changed_by_nfc():
    nfc = normalizers.NFC().normalize_str
    low, high = "\u0334", "\u0301"  # combining classes 1 and 230
    flags = set()
    for code_point in CODE_POINTS:
        c = chr(code_point)
        if nfc(c) != c or nfc(c + low) == low + c or nfc(high + c) == c + high:
            flags.add(code_point)
        decomposed = unicodedata.decomposition(c).split()
        if len(decomposed) == 2 and not decomposed[0].startswith("<"):
            first, second = (chr(int(part, 16)) for part in decomposed)
            if nfc(first + second) == c:
                flags.add(ord(second))
    flags.update(range(0x1161, 0x1176))  # vowels and final consonants of Hangul, which join what stands before them
    flags.update(range(0x11A8, 0x11C3))
    flags.update((ord(low), ord(high)))
    return flags


def main():
    category, nfc = categories(), changed_by_nfc()
    values = [(LETTERS_NFC if c in nfc else LETTERS)[category[c]] for c in range(0x110000)]
    text = ""
    for letter, run in itertools.groupby(values):
        count = len(list(run))
        text += letter + (str(count) if count > 1 else "")
    print("// Written by make_unicode_table.py: runs of code points from 0 on, a letter and how many where there are several.")
    for begin in range(0, len(text), 112):
        print(f'    "{text[begin:begin + 112]}"')


main()
