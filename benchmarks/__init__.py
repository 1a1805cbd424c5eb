"""How fast and how good the guard is, beside what else does its work.

The rule: only ratios count. Both sides of a ratio are measured in one process, in
turns, so that a slow machine or a busy one hits both; the figure is the median of
the rounds. CPU time is measured and never the clock on the wall.

`python -m benchmarks` measures everything, prints the tables and writes
`results.json`; `--check` compares with that file instead and fails on a clear step
back. What the guard is compared with lives in an environment of its own (`.bench`,
versions in `requirements.txt`), never in the plugin's.
"""
