#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Check that both ends of every memory-ordering edge exist.

A comment at an ordered access names it and its partner: CORE-A1 <-> CORE-R2.  Checked:
  - each label is on at least two lines of the sources (one line if it is its own partner,
    the same access by another thread), and comes first on one of them: it has a comment
    of its own, and is not only mentioned by its partner;
  - a folder's labels begin with its name; other folders may refer to them;
  - Documentation/memory-model.md, if it exists, has the same labels.
"""
import glob
import os
import re
import sys

LAYERS = ("pool", "device", "exec", "core", "compat")
LABEL = re.compile(r"\b(?:%s)-[A-Z]{1,2}\d+\b" % "|".join(l.upper() for l in LAYERS))
LIST = r"{0}(?:\s*\([^()]*\))?(?:\s*(?:,|and)\s*{0}(?:\s*\([^()]*\))?)*".format(LABEL.pattern)
FIRST = re.compile(r"(?:/\*|^\s*\*|//)\s*(%s)" % LABEL.pattern, re.M)
EDGE = re.compile(r"(%s)\s*<->\s*(%s)" % (LIST, LIST))


def main():
    top = sys.argv[1] if len(sys.argv) > 1 else "."
    places = {}     # label -> set of file:line
    edges = set()   # (label, partner)
    first = set()   # labels that begin a comment, or a line of one
    bad = []
    for path in sorted(p for layer in LAYERS + ("include/base",)
                       for p in glob.glob(os.path.join(top, layer, "*.[ch]"))):
        name = os.path.relpath(path, top)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        first.update(FIRST.findall(text))
        for number, line in enumerate(text.splitlines(), 1):
            for label in LABEL.findall(line):
                places.setdefault(label, set()).add(f"{name}:{number}")
        # an edge may go on in the next line of its comment
        flat = re.sub(r"\n\s*\*(?!/)", lambda m: " " * len(m.group()), text)
        for match in EDGE.finditer(flat):
            edges.update((a, b) for a in LABEL.findall(match.group(1))
                         for b in LABEL.findall(match.group(2)))
    for label, where in sorted(places.items()):
        if len(where) < 2 and (label, label) not in edges:
            bad.append(f"{min(where)}: {label} occurs nowhere else")
        elif label not in first:
            bad.append(f"{min(where)}: {label} has no comment that begins with it")
        files = {w.split("/")[0] for w in where}
        if label.split("-")[0].lower() not in files:
            bad.append(f"{min(where)}: {label} is not in its folder")
    doc = os.path.join(top, "Documentation", "memory-model.md")
    if os.path.exists(doc):
        with open(doc, encoding="utf-8") as file:
            written = set(LABEL.findall(file.read()))
        bad += [f"{min(places[l])}: {l} is not in memory-model.md"
                for l in sorted(places.keys() - written)]
        bad += [f"memory-model.md: {l} is not in the sources"
                for l in sorted(written - places.keys())]
    for line in bad:
        print(line, file=sys.stderr)
    if not bad:
        print(f"{len(places)} labels, {len(edges)} edges")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
