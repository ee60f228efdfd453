#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What kconfiglib's commands do not do: follow what is installed, name the packages that an option
lacks, merge fragments, check help texts."""
import os
import re
import sys

import kconfiglib

# A copy of .config as it was made by default; one that differs was made by a person.
MADE = "include/config/default"
# Options that say which programs are built.  No C source reads them, nor the HAVE_* of the probes:
# without them in the header, a package that comes or goes leaves the objects as they are.
PARTS = {"COMPAT_MX", "TOOL_PAWL", "MAN_PAGES", "TESTS"}


def read(path):
    """The text of a file; of one that does not exist, none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(path, text):
    """Write a file at once, so that a concurrent make reads the old text or the new."""
    if read(path) != text:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.{os.getpid()}", path)


def default(kconf, files):
    """Make .config from configs/defconfig and what is installed."""
    kconf.load_config(files[0])
    print(kconf.write_config())
    write(MADE, read(os.environ["KCONFIG_CONFIG"]))


def needs(sym, seen):
    """The probes that found nothing and without which sym is off."""
    if sym in seen:
        return []
    seen.add(sym)
    found = []
    for dep in sorted(kconfiglib.expr_items(sym.direct_dep), key=lambda d: d.name or ""):
        if isinstance(dep, kconfiglib.Symbol) and dep.str_value == "n" and dep.nodes:
            found += [dep] if dep.name.startswith("HAVE_") else needs(dep, seen)
    return found


def packages(probe):
    """The packages that a probe's help text names at its end, in parentheses."""
    named = re.search(r"\(([^()]*)\)\.?\s*$", probe.nodes[0].help or "")
    return named.group(1).split(", ") if named else [probe.name]


def lacks(kconf, names):
    """The packages without which these options are off."""
    return [p for name in names for probe in
            ([kconf.syms[name]] if name.startswith("HAVE_") else needs(kconf.syms[name], set()))
            for p in packages(probe)]


def sync(kconf, files):
    """Write auto.conf and the header.  A .config that was made by default is made again if what is
    installed has changed; any other stays, and what changes nevertheless is printed."""
    defconfig, auto = files
    path = os.environ["KCONFIG_CONFIG"]
    theirs = read(path) != read(MADE)
    if theirs:
        kconf.load_config(path)
    else:
        kconf.load_config(defconfig)
        kconf.write_config(save_old=False)
        write(MADE, read(path))
    before = dict(re.findall(r"^CONFIG_(\w+)=(.*)$", read(auto), re.M))
    after = {s.name: s.str_value for s in kconf.unique_defined_syms
             if s.config_string and not s.config_string.startswith("#")}
    void = [s.name for s in kconf.unique_defined_syms
            if s.orig_type is kconfiglib.BOOL and not s.choice and s.user_value == 2
            and s.str_value == "n" and s.nodes[0].prompt and theirs and lacks(kconf, [s.name])]
    changed = [f"{name} is {'on' if name in after else 'off'}" for name in sorted(before | after)
               if before and (name in before) != (name in after)
               and not name.startswith("HAVE_") and name not in void]
    changed += [f"{name} is off, though .config has it on: {' '.join(lacks(kconf, [name]))} is "
                f"missing (make setup)" for name in void]
    if changed and theirs:
        print(f"configuration: {'; '.join(changed)}")
        print("configuration: .config stays as it is, since it was not made by default: make "
              "oldconfig asks about its new options, make defconfig replaces it")
    elif changed:
        print(f"configuration: it follows what is installed: {'; '.join(changed)}")
    header = os.environ["KCONFIG_AUTOHEADER"]
    kconf.write_autoconf(f"{auto}.new")
    write(header, "".join(
        line for line in read(f"{auto}.new").splitlines(True)
        if not (name := line.split()[1].removeprefix("CONFIG_")).startswith("HAVE_")
        and name not in PARTS))
    kconf.write_config(f"{auto}.new", save_old=False)
    os.replace(f"{auto}.new", auto)


def lacking(kconf, args):
    """Say why options are off of which something needs all: a package is missing (status 1), or the
    configuration turns them off (status 2)."""
    what, *names = args
    kconf.load_config(os.environ["KCONFIG_CONFIG"])
    off = [name for name in names if kconf.syms[name].str_value == "n"]
    missing = sorted(set(lacks(kconf, off)))
    if missing:
        print(f"{what} needs packages that are missing: {' '.join(missing)} (make setup installs "
              f"them on Debian)", file=sys.stderr)
        return 1
    if off:
        print(f"{what}: the configuration turns CONFIG_{', CONFIG_'.join(off)} off "
              f"(make menuconfig)", file=sys.stderr)
        return 2
    return 0


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
    command = {"default": default, "sync": sync, "lacking": lacking, "merge": merge,
               "check": check}[sys.argv[1]]
    return command(kconfiglib.Kconfig("Kconfig", warn_to_stderr=sys.argv[1] == "merge",
                                      suppress_traceback=True), sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
