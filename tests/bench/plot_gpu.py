#!/usr/bin/env python3
"""Draws what gpu.sh measured: each figure as a share of its limit (measured bandwidth over the weights' bytes) or its peer.

    tests/bench/plot_gpu.py RESULTS.json [OUT.svg]
"""
import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.hashsalt": "oinfer", "svg.fonttype": "none"})
import matplotlib.pyplot as plt  # noqa: E402


def bars(axis, title, rows, against):
    rows = [r for r in rows if r["ours"] and r.get(against)][::-1]
    shares = [r["ours"] / r[against] for r in rows]
    axis.barh(range(len(rows)), shares, color="tab:blue", height=0.7)
    axis.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axis.set_yticks(range(len(rows)), [r["label"] for r in rows], fontsize=8)
    for i, (r, share) in enumerate(zip(rows, shares)):
        axis.text(share, i, f" {r['ours']:,.0f} {r['unit']}", va="center", fontsize=7)
    axis.set(title=title, xlim=(0, max(shares, default=1) * 1.3))


def main():
    data = json.loads(pathlib.Path(sys.argv[1]).read_text())
    models = [r for r in data["results"] if r["unit"] == "tok/s"]
    ops = [r for r in data["results"] if r["unit"] != "tok/s"]
    figure, axes = plt.subplots(1, 3, figsize=(16, 5))
    bars(axes[0], f"generation, share of the bandwidth limit\n({data['read_gb_s']:,.0f} GB/s read)", models, "limit")
    bars(axes[1], "models, ratio to llama.cpp's CUDA backend", models, "peer")
    bars(axes[2], "operators, ratio to PyTorch's CUDA libraries", ops, "peer")
    figure.suptitle(data["device"])
    figure.tight_layout()
    figure.savefig(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent / "gpu.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
