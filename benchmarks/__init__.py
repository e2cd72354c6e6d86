"""One file per question; each prints a table and writes JSON.

    python -m benchmarks.loop --json=FILE

Figures are ratios within one run: contestants take turns (A B A B …) on the
same machine, and medians of their pairs are reported with a 90 % interval.
"""
