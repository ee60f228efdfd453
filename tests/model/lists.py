#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Try every mutant and planted bug in every scenario; write mutants.list, planted.list.

Reasons that are in mutants.list already stay there.  A mutant that no program finds and
that has no reason is "!" in the list.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = os.environ.get("MODEL_LIST_ARGS", "-n 3000 -t 1.5").split()


def run(prog, mode):
    out = subprocess.run([prog, mode, "-j", "2"] + RUNS, stdout=subprocess.PIPE, text=True,
                         check=False).stdout
    return [line.split("\t") for line in out.splitlines() if "\t" in line]


def old_reasons(path):
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                parts = line.rstrip("\n").split("\t")
                if parts[0] == "-" and len(parts) > 2:
                    found[parts[1]] = parts[2]
    return found


def write(path, title, results, reasons):
    names = {}
    for parts in results:
        where, name = parts[0], parts[1]
        if names.get(name, "!") == "!":
            names[name] = where if where not in ("!", "?") else "!"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"# SPDX-License-Identifier: Apache-2.0\n# {title}\n")
        for name, where in sorted(names.items()):
            if where == "!" and name in reasons:
                file.write(f"-\t{name}\t{reasons[name]}\n")
            else:
                file.write(f"{where}\t{name}\n")
    return names


def main():
    mutants, planted = [], []
    for prog in sys.argv[1:]:
        prog = os.path.join(".", prog)
        planted += run(prog, "-B")
        mutants += run(prog, "-X")
    path = os.path.join(HERE, "mutants.list")
    write(path, "program/scenario that finds the mutant; -: explained; !: open", mutants,
          old_reasons(path))
    write(os.path.join(HERE, "planted.list"), "program/scenario that finds the planted bug",
          planted, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
