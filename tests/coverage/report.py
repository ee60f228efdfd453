#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Report what the tests executed: a line of figures for each folder, and a list of the rest.

report.py BUILD FOLDER...: reads BUILD/coverage.json, which gcovr made; writes the figures to
BUILD/summary.txt and prints them, and what was not executed to BUILD/uncovered.txt.  Fails if a folder
has less than LINES or BRANCHES percent.
"""
import json
import os
import sys

# A little below the least that a layer has (Documentation/testing.md): which branches of
# races are taken differs from run to run.
LINES = 95
BRANCHES = 88


class Count:
    """How many there are, and how many were executed."""

    def __init__(self):
        self.all = self.hit = 0

    def add(self, hit):
        self.all += 1
        self.hit += bool(hit)

    def percent(self):
        return 100 * self.hit / self.all if self.all else 100

    def __str__(self):
        return f"{self.percent():5.1f} % of {self.all:5}"


def uncovered(entry, counts):
    """Add a file's lines and branches to counts; return a text for each of its gaps."""
    path, gaps = entry["file"], []
    with open(path, encoding="utf-8") as file:
        source = file.read().split("\n")
    for function in entry["functions"]:
        if not function["execution_count"]:
            gaps.append((function["lineno"], f"{function['name']}() is never called"))
    for line in entry["lines"]:
        if line.get("gcovr/noncode") or line.get("gcovr/excluded"):
            continue
        counts[0].add(line["count"])
        number = line["line_number"]
        missed = 0
        for branch in line["branches"]:
            counts[1].add(branch["count"])
            missed += not branch["count"]
        text = source[number - 1].strip()
        if not line["count"]:
            gaps.append((number, "not executed: " + text))
        elif missed:
            gaps.append((number, f"{missed} of {len(line['branches'])} branches not taken: {text}"))
    return [f"{path}:{number}: {text}" for number, text in sorted(gaps)]


def main():
    build, folders = sys.argv[1], sys.argv[2:]
    with open(os.path.join(build, "coverage.json"), encoding="utf-8") as file:
        files = json.load(file)["files"]
    names = folders + ["all"]
    counts = {name: (Count(), Count()) for name in names}
    gaps = []
    for entry in sorted(files, key=lambda entry: entry["file"]):
        gaps += uncovered(entry, counts[entry["file"].split("/")[0]])
    for name in folders:
        for total, count in zip(counts["all"], counts[name]):
            total.all += count.all
            total.hit += count.hit
    rest = os.path.join(build, "uncovered.txt")
    with open(rest, "w", encoding="utf-8") as file:
        file.write("\n".join(gaps) + "\n")
    text = "".join(f"    {name:7} lines {counts[name][0]}   branches {counts[name][1]}\n"
                   for name in names)
    text += f"    not covered: {rest}\n"
    with open(os.path.join(build, "summary.txt"), "w", encoding="utf-8") as file:
        file.write(text)
    print("Coverage:\n" + text, end="")
    bad = 0
    for name in folders:
        for what, count, least in zip(("lines", "branches"), counts[name], (LINES, BRANCHES)):
            if not count.all or count.percent() < least:
                print(f"coverage: {name} has less than {least} % of its {what}", file=sys.stderr)
                bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
