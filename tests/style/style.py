#!/usr/bin/env python3
"""Style of the tree: format, length, banned functions and words, a comment on top of every source file.

    tests/style.py [ROOT]         checks every file; exit status 1 and one line a fault
    tests/style.py --self-test    feeds each check a bad file and fails if one passes

clang-format's output differs between major versions, so formatting is checked by version 14 only and skipped, with a
line that says so, where another is installed.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ("engine", "server", "config", "kernels", "tests", "deploy", ".ci")
TEXT_SUFFIXES = {".c", ".h", ".cl", ".inc", ".def", ".py", ".sh", ".cmake", ".md", ".txt", ".yaml", ".conf", ".in", ""}
FORMATTED = {".c", ".h"}   # host code; below kernels/ only what the host compiles too
HOST_KERNEL_HEADERS = {"kernels/params.h", "kernels/quant.h", "kernels/embedded.h", "kernels/cpu/q8t.h",
                       "kernels/cpu/decode.h"}
COMMENTED = {".c", ".h", ".cl", ".inc", ".def"}
COUNTED = {".c", ".h", ".cl", ".inc", ".def", ".py", ".sh", ".cmake"}
MAX_LINES = 800
BANNED_CALLS = ("strcpy", "strcat", "sprintf", "vsprintf", "gets", "atoi", "atol", "atoll", "atof", "strtok", "sscanf",
                "alloca")
# Written in pieces, so that this file passes its own check.
BANNED_WORDS = ("TO" + "DO", "FIX" + "ME", "X" * 3 + ":", "/wo" + "rk/", "py" + "pi.org", "python" + "hosted",
                "deb." + "debian.org", "npm" + "js")
GOLDEN = re.compile(r"^tests/(golden/.*\.(txt|json|inp|out|bin)|fuzz/corpus/)")


def source_files(root):
    """Every text file of ours below root, as paths relative to it."""
    for path in sorted(root.iterdir()):
        if path.is_file() and path.name in ("CMakeLists.txt", "CMakePresets.json", "README.md"):
            yield path.relative_to(root)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            if not path.is_file() or path.suffix not in TEXT_SUFFIXES or "__pycache__" in relative.parts:
                continue
            if GOLDEN.match(relative.as_posix()):
                continue
            yield relative


def check_text(name, text):
    """Yields the faults of one file's text."""
    suffix = pathlib.PurePath(name).suffix
    lines = text.split("\n")
    if suffix in COUNTED and len(lines) - 1 > MAX_LINES:
        yield f"{name}: {len(lines) - 1} lines, the most is {MAX_LINES}"
    if suffix in COMMENTED and not text.startswith("/*"):
        yield f"{name}: does not begin with a comment that says what it owns"
    if text and not text.endswith("\n"):
        yield f"{name}: no newline at the end"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() and suffix != ".md":
            yield f"{name}:{number}: space at the end of the line"
        if "\t" in line and suffix in FORMATTED | {".cl", ".def", ".py", ".cmake"}:
            yield f"{name}:{number}: tab"
        # Device code is laid out by hand (drawings, tables of tiles), host code by clang-format.
        if suffix in FORMATTED | {".cl"} and len(line) > (110 if name.startswith("kernels/") else 100):
            yield f"{name}:{number}: {len(line)} columns"
        for word in BANNED_WORDS:
            if word in line:
                yield f"{name}:{number}: '{word}'"
        if suffix in FORMATTED:
            for call in BANNED_CALLS:
                if re.search(rf"\b{call}\s*\(", line):
                    yield f"{name}:{number}: {call}() is banned"
            if re.search(r"(^|\s)//", line) and "://" not in line:
                yield f"{name}:{number}: comments are /* */ in C files"


def check_format(root, names):
    """Yields the files that clang-format 14 would change."""
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout if tool else "none"
    if "version 14." not in version:
        print(f"formatting not checked: needs clang-format 14, found {version.strip()}")
        return
    done = subprocess.run([tool, "--dry-run", "-Werror", *names], cwd=root, capture_output=True, text=True)
    changed = set(re.findall(r"^([^:\s]+):\d+:\d+: error:", done.stderr, re.M))
    if done.returncode != 0 and not changed:
        yield f"clang-format failed: {done.stderr[-300:]}"
    for name in sorted(changed):
        yield f"{name}: not as clang-format writes it"


def check_tree(root):
    """All faults of the tree, one string each."""
    faults, formatted, count = [], [], 0
    for relative in source_files(root):
        count += 1
        try:
            text = (root / relative).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            faults.append(f"{relative}: not UTF-8")
            continue
        faults.extend(check_text(relative.as_posix(), text))
        name = relative.as_posix()
        if relative.suffix in FORMATTED and (relative.parts[0] != "kernels" or name in HOST_KERNEL_HEADERS):
            formatted.append(name)
    faults.extend(check_format(root, formatted))
    return count, faults


def self_test():
    """Each bad text must give a fault, the good one none."""
    good = "/* Owns nothing. */\nint x;\n"
    bad = {
        "no comment": "int x;\n", "no newline": "/* x */\nint x;", "space": "/* x */\nint x; \n",
        "tab": "/* x */\n\tint x;\n", "long line": "/* x */\n" + "x" * 101 + "\n",
        "long file": "/* x */\n" * (MAX_LINES + 1), "line comment": "/* x */\n// y\n",
    }
    bad.update({call: f"/* x */\n    {call} (a);\n" for call in BANNED_CALLS})
    bad.update({word: f"/* {word} */\n" for word in BANNED_WORDS})
    failed = [name for name, text in bad.items() if not list(check_text("engine/x.c", text))]
    failed += [f"good text: {fault}" for fault in check_text("engine/x.c", good)]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "engine").mkdir()
        (root / "engine/a.c").write_bytes(b"/* \xff */\n")
        if not check_tree(root)[1]:
            failed.append("bytes that are not UTF-8")
    for name in failed:
        print(f"not caught: {name}")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    count, faults = check_tree(root)
    print("\n".join(faults + [f"{count} files, {len(faults)} faults"]))
    return 1 if faults or count < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
