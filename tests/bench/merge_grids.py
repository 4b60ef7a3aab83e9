#!/usr/bin/env python3
"""Merges recordings of one grid: of every point the least time, which other work on the machine can only raise.

    tests/bench/merge_grids.py RUN.tsv RUN.tsv ... > GRID.tsv

A point is invalid where it is in every run; the reason is that of the first.
"""
import sys


def main():
    points = {}
    for name in sys.argv[1:]:
        with open(name) as f:
            head, *lines = f.read().splitlines()
        for line in lines:
            *key, ns, reason = line.split("\t")
            old = points.setdefault(tuple(key), (float(ns), reason))
            if 0 < float(ns) and (old[0] == 0 or float(ns) < old[0]):
                points[tuple(key)] = (float(ns), reason)
    print(head)
    for key, (ns, reason) in points.items():
        print(*key, f"{ns:.0f}", reason, sep="\t")


if __name__ == "__main__":
    main()
