#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Generate the shared library's version map from the PAWL_EXPORT() lines of its sources.

With -c: check that these name exactly the functions that the public headers declare, and that
Debian's lists of symbols name.
"""
import argparse
import glob
import os
import re
import sys

EXPORT = re.compile(r"^PAWL_EXPORT\((\w+)\);", re.M)
SYMBOL = re.compile(r"^ (\w+)@\w+", re.M)
NODE = re.compile(r"PAWL_\w*?\d")
API = re.compile(r"^PAWL_API\b[^;(]*?(\w+)\s*\(", re.M)


def exports(sources, twins):
    """Name to file, of all exports; only twins, files for Y and N, may share a name."""
    found = {}
    for path in sources:
        with open(path, encoding="utf-8") as file:
            for name in EXPORT.findall(file.read()):
                if name in found and not twins:
                    sys.exit(f"{path}: {name} is exported by {found[name]} too")
                found[name] = path
    return found


def check(include, debian, found):
    """Compare with the public headers and Debian's lists."""
    declared = {}
    listed = set()
    for path in glob.glob(os.path.join(debian, "*.symbols")):
        with open(path, encoding="utf-8") as file:
            listed |= {name for name in SYMBOL.findall(file.read()) if not NODE.match(name)}
    for path in sorted(glob.glob(os.path.join(include, "*.h"))):
        with open(path, encoding="utf-8") as file:
            for name in API.findall(file.read()):
                declared[name] = path
    for name in sorted(declared.keys() - found.keys()):
        print(f"{declared[name]}: {name}() is not exported by any source", file=sys.stderr)
    for name in sorted(found.keys() - declared.keys()):
        print(f"{found[name]}: {name}() is in no public header", file=sys.stderr)
    for name in sorted(listed ^ found.keys()):
        print(f"{debian}/*.symbols: {name} is {'not exported' if name in listed else 'missing'}",
              file=sys.stderr)
    return int(declared.keys() != found.keys() or listed != found.keys())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--node", help="name of the map's node")
    parser.add_argument("-o", "--output", help="the map")
    parser.add_argument("-c", "--check", metavar="DIR", help="folder of public headers")
    parser.add_argument("-s", "--symbols", metavar="DIR", help="folder of Debian's lists")
    parser.add_argument("sources", nargs="*")
    args = parser.parse_args()
    found = exports(args.sources, args.check)
    if args.check:
        return check(args.check, args.symbols, found)
    names = "".join(f"\t{name};\n" for name in sorted(found))
    text = args.node + " {\n" + (f"global:\n{names}" if names else "") + "local:\n\t*;\n};\n"
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
