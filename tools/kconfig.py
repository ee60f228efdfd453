#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Merge configuration fragments and check help texts, which kconfiglib's commands do not do."""
import os
import sys

import kconfiglib


def merge(kconf, fragments):
    """Put fragments on top of the configuration; a value that does not stick is an error."""
    path = os.environ["KCONFIG_CONFIG"]
    kconf.warn_assign_override = False
    if os.path.exists(path):
        print(kconf.load_config(path))
    bad = 0
    for fragment in fragments:
        print(kconf.load_config(fragment, replace=False))
        with open(fragment, encoding="utf-8") as file:
            for line in file:
                name, eq, value = line.strip().partition("=")
                if not eq or name.startswith("#"):
                    continue
                sym = kconf.syms.get(name.removeprefix("CONFIG_"))
                if sym is None or sym.str_value != value.strip('"'):
                    print(f"{fragment}: {line.strip()} has no effect", file=sys.stderr)
                    bad = 1
    print(kconf.write_config(path))
    return bad


def check(kconf, _):
    """A symbol and a choice's member: each has a help text, and no other twin."""
    bad = 0
    for sym in kconf.unique_defined_syms:
        if not any(node.help for node in sym.nodes):
            node = sym.nodes[0]
            print(f"{node.filename}:{node.linenr}: {sym.name} has no help text",
                  file=sys.stderr)
            bad = 1
    for text in kconf.warnings:
        print(text, file=sys.stderr)
        bad = 1
    return bad


def main():
    os.environ["KCONFIG_WARN_UNDEF"] = "y"
    command = {"merge": merge, "check": check}[sys.argv[1]]
    return command(kconfiglib.Kconfig("Kconfig", warn_to_stderr=sys.argv[1] == "merge",
                                      suppress_traceback=True), sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
