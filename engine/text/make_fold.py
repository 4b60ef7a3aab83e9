#!/usr/bin/env python3
"""Writes fold.def: what each character becomes for uncased WordPiece vocabularies.

Canonical decomposition, without non-spacing marks, in lower case; control characters vanish.
Hangul syllables are left out (fold.c computes them), and so are the compatibility ideographs and the
musical symbols, which no vocabulary of this kind has. Run: python3 make_fold.py > fold.def
"""
import sys
import unicodedata as u

SPACES = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}
KEPT = ((0xAC00, 0xD7A3), (0xD800, 0xDFFF), (0xF900, 0xFAFF), (0x1D100, 0x1D1FF),
        (0x2F800, 0x2FA1F))


def fold(cp):
    if cp in SPACES or any(a <= cp <= b for a, b in KEPT):
        return [cp]
    out = []
    for c in u.normalize("NFD", chr(cp)):
        if u.category(c) not in ("Mn", "Cc", "Cf", "Co") and c != "\uFFFD":
            out += [ord(x) for x in (c.lower() if len(c.lower()) == 1 else c)]
    return out


def rows():
    """Ranges (first, last, step, change); change None: vanishes; and pairs (cp, a, b)."""
    ranges, pairs = [], []
    for cp in range(0x110000):
        to = fold(cp)
        if to == [cp]:
            continue
        assert len(to) <= 2, hex(cp)
        if len(to) == 2:
            pairs.append((cp, to))
            continue
        change = to[0] - cp if to else None
        if ranges:
            first, last, step, c = ranges[-1]
            if c == change and (cp - last == step or (first == last and cp - last in (1, 2))):
                ranges[-1] = (first, cp, cp - last, c)
                continue
        ranges.append((cp, cp, 1, change))
    return ranges, pairs


def main():
    ranges, pairs = rows()
    out = sys.stdout
    out.write("/* Made by make_fold.py from Unicode %s; do not edit. */\n" % u.unidata_version)
    line = ""
    rows_of_text = ["FOLD(0x%X, 0x%X, %d, %d)" % (a, b, s, c) if c is not None
                    else "DROP(0x%X, 0x%X, %d)" % (a, b, s) for a, b, s, c in ranges]
    rows_of_text += ["PAIR(0x%X, 0x%X, 0x%X)" % (cp, *t) for cp, t in pairs]
    for r in rows_of_text:
        if len(line) + len(r) + 1 > 100:
            out.write(line + "\n")
            line = ""
        line += (" " if line else "") + r
    out.write(line + "\n")


main()
