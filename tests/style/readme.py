#!/usr/bin/env python3
"""Keeps the README's option table equal to config/options.def.

    tests/style/readme.py            exit status 1 when the table is not current
    tests/style/readme.py --write    rewrites it
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- options: written by tests/style/readme.py -->", "<!-- end of options -->"
ROW = re.compile(r'^OPTION(?:_LIVE)?\((\w+), "([^"]*)", \w+, (\w+), "([^"]*)", (.*?), (.*?), "([^"]*)", "([^"]*)"\)', re.M)


def table():
    """The Markdown table of all options."""
    text = (ROOT / "config/options.def").read_text(encoding="utf-8")
    rows = ROW.findall(text)
    if len(rows) != len(re.findall(r"^OPTION(?:_LIVE)?\(", text, re.M)):
        sys.exit("readme.py: a row of config/options.def is not in the form that this script reads")
    lines = ["| section | option | value | default | what |", "|---|---|---|---|---|"]
    for section, name, kind, default, _, _, unit, help_text in rows:
        value = (unit or ("yes or no" if kind == "SWITCH" else kind.lower())).replace("|", r"\|")
        lines.append(f"| {section} | `{name}` | {value} | {f'`{default}`' if default else ''} | {help_text} |")
    return "\n".join(lines)


def main():
    path = ROOT / "README.md"
    readme = path.read_text(encoding="utf-8")
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit("readme.py: README.md has no markers of the option table")
    current = f"{head}{BEGIN}\n{table()}\n{END}{tail}"
    if sys.argv[1:] == ["--write"]:
        path.write_text(current, encoding="utf-8")
    elif current != readme:
        sys.exit("readme.py: the README's option table is not current; run tests/style/readme.py --write")


if __name__ == "__main__":
    main()
