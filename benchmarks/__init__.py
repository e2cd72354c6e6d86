"""One file per question; each prints a table and writes JSON.

    python -m benchmarks.loop --json=FILE
    python -m benchmarks                   # all; keeps benchmarks/results.json
    python -m benchmarks._table            # README's table from it

Figures are ratios within one run: contestants take turns (A B A B …) on the
same machine, and medians of their pairs are reported with a 90 % interval. A
public module here is a benchmark: it takes `--json` and names its figures
`<module>.…`. Peers that are not installed are named and left out.
"""
