#!/usr/bin/env python3
"""Draws how fast the searches get to the best of the recorded grids: best so far against points, bayes and random.

    tests/bench/plot_tune.py TUNE_REPLAY [OUT.svg]

TUNE_REPLAY is the program build/dev/tests/tune_replay; lines are medians over the seeds, bands their range.
"""
import pathlib
import statistics
import subprocess
import sys

import matplotlib
matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "oinfer"
import matplotlib.pyplot as plt  # noqa: E402

SEEDS, BUDGET, COLUMNS = 10, 40, 2
FOLDER = pathlib.Path(__file__).parent / "tune"


def curves(replay, grid):
    """{search: [values over the seeds, for each count of points]}"""
    out = {}
    for line in subprocess.run([replay, grid, str(SEEDS), str(BUDGET)], capture_output=True, text=True, check=True).stdout.splitlines():
        search, _, points, share = line.split("\t")
        out.setdefault(search, {}).setdefault(int(points), []).append(100 * float(share))
    return out


def main():
    grids = sorted(FOLDER.glob("*.tsv"))
    columns = min(COLUMNS, len(grids))
    rows = -(-len(grids) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.5 * columns, 3.2 * rows), sharey=True, squeeze=False)
    for axis in axes.flat[len(grids):]:
        axis.set_visible(False)
    for axis, grid in zip(axes.flat, grids):
        for (search, points), colour in zip(sorted(curves(sys.argv[1], grid).items()), ("tab:blue", "tab:orange")):
            x = sorted(points)
            axis.fill_between(x, [min(points[i]) for i in x], [max(points[i]) for i in x], alpha=0.2, color=colour, linewidth=0)
            axis.plot(x, [statistics.median(points[i]) for i in x], label=search, color=colour)
        axis.axhline(95, color="grey", linewidth=0.8, linestyle=":")
        axis.set(title=f"{grid.stem}, {sum(1 for _ in open(grid)) - 1} points", xlabel="points measured", ylim=(40, 101))
        axis.legend(loc="lower right")
    for row in axes:
        row[0].set_ylabel("% of the grid's best")
    figure.tight_layout()
    figure.savefig(sys.argv[2] if len(sys.argv) > 2 else FOLDER / "searches.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
