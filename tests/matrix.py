#!/usr/bin/env python3
"""Joins the tests of several build folders into one, so that one ctest runs all and prints one summary.

    tests/matrix.py OUT PREFIX=BUILD[:LABEL,LABEL...] ...

Asks ctest for the tests of each BUILD and writes OUT/CTestTestfile.cmake with the same commands and properties under the
names PREFIX/NAME; with labels, only tests that have one of them. A test that is not built is kept: it fails as it should.
Tests that compile many kernels run in the first build that has them before they run in others, which find the kernels.
"""
import json
import pathlib
import subprocess
import sys

COMPILING = {"ops", "golden"}   # labels
NAME_LISTS = ("DEPENDS", "FIXTURES_SETUP", "FIXTURES_CLEANUP", "FIXTURES_REQUIRED")


def quote(text):
    """A CMake bracket argument that holds any text."""
    level = 1
    while f"]{'=' * level}]" in text or text.endswith(f"]{'=' * level}"):
        level += 1
    return f"[{'=' * level}[{text}]{'=' * level}]"


def value_text(value):
    """A property's value from ctest's JSON as CMake writes it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, list):
        return ";".join(value_text(item) for item in value)
    if isinstance(value, dict):
        return value_text(value["value"])
    return str(value)


def tests_of(build):
    """The tests of one build folder as ctest describes them."""
    done = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["tests"]


def test_lines(prefix, test, compiled):
    """The add_test and set_tests_properties lines of one test, which runs after the compiled one of the same name if any."""
    name = quote(f"{prefix}/{test['name']}")
    after = [compiled[test["name"]]] if test["name"] in compiled else []
    yield f"add_test({name} {' '.join(quote(word) for word in test['command'])})"
    for entry in test.get("properties", []):
        key, value = entry["name"], entry["value"]
        if key == "DEPENDS":
            after.extend(compiled.get(item, f"{prefix}/{item}") for item in value)
            continue
        if key in NAME_LISTS:
            value = [f"{prefix}/{item}" for item in value]
        yield f"set_tests_properties({name} PROPERTIES {key} {quote(value_text(value))})"
    if after:
        yield f"set_tests_properties({name} PROPERTIES DEPENDS {quote(value_text(after))})"


def main():
    out = pathlib.Path(sys.argv[1])
    lines = ["# Written by tests/matrix.py"]
    compiled = {}   # name of a test: what it is called in the first build
    for argument in sys.argv[2:]:
        prefix, _, rest = argument.partition("=")
        build, _, labels = rest.partition(":")
        wanted = set(labels.split(",")) if labels else None
        count = 0
        for test in tests_of(build):
            properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
            if wanted is not None and not wanted & set(properties.get("LABELS", [])):
                continue
            if "command" not in test:
                test["command"] = [f"{build}: {test['name']} is not built"]
            lines.extend(test_lines(prefix, test, compiled))
            if COMPILING & set(properties.get("LABELS", [])) or "DEPENDS" in properties:
                compiled.setdefault(test["name"], f"{prefix}/{test['name']}")
            count += 1
        if count == 0:
            sys.exit(f"matrix.py: {build} has no tests with the labels {labels}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
