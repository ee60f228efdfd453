#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plant small mistakes in the sources, one at a time, and see whether the tests find them.

usage: mutate.py [--count N] [--seed S] [--minutes M] [--file PATH]... [--kind KIND]...
                 [--plant PATCH]... [--quick] [--list] [--jobs J]

A mutant is one change of one line: another comparison, a boundary or constant moved by one, a
condition negated, a statement or call left out, two arguments swapped, another return code, a
weaker memory order.  N of them are sampled with seed S from pool, exec, core, device, compat
and tools/pawl.  For each, the copy of the sources in build/mutation/src is changed and built
into build/mutation/obj; then the tests run: check-edges for an order, those of the file, those
of its layer, and all others, until one fails.  A mutant that does not compile without a
warning, or compiles to the same code, is replaced by another one.  --plant tries the changes of
patches instead; --quick leaves out the tests of the other layers.

The survivors, with their changes, are written to build/mutation/survivors.txt.  A survivor that
behaves like the original belongs in equivalent.list, with a reason.  It is left out while the
lines around it are the same, and reported when they have changed.  The exit status is 1
if a mutant survived.
"""
import argparse
import difflib
import glob
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(TOP, "build", "mutation")
SRC, OBJ = os.path.join(HERE, "src"), os.path.join(HERE, "obj")
LAYERS = ("pool", "exec", "core", "device", "compat", "tools/pawl")
AROUND = 3          # lines above and below that belong to a mutant's hash
SLOWEST = 100       # seconds for one test

# The tests of a layer besides those with the name of the file; the others follow.
OF_LAYER = {
    "pool": r"unit/test_(pool|pool_trim|arena|err|rcu|trim)$",
    "exec": r"unit/test_(ring|queue|park|prioq\w*|worker|workers|ready|caller|priority)$",
    "core": r"unit/test_(?!hist|model|images|serve|mx_)\w+$|cpp/",
    "device": r"device/|fault/fault_device",
    "compat": r"compat/|unit/test_mx|fault/fault_mx",
    "tools/pawl": r"unit/test_(hist|model|images|record)$|fuzz/fuzz_(images|model|record)|tools/test_",
}
# of the whole library, in the order in which they run
LISTS = ("unit", "fuzz", "lin", "stress", "fault", "tools")
# need what a machine may lack, or take minutes and cover no line in particular
NOT = re.compile(r"mxnet/run|test_python|abi/|load/|docs/|serve|test_realtime|test_probes")

COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
ACCESS = r"\b(load|store|xchg|fetch_add|fetch_or|fetch_and|cas)_(?:acquire|release|acq_rel|seq_cst)" \
         r"(?:_(?:relaxed|acquire))?\("


def swap_arguments(m):
    return "%s(%s, %s" % (m.group(1), m.group(3), m.group(2))


# kind -> [(pattern, replacement)]; a pattern is tried at each position of a line
KINDS = {
    "compare": [(r"(?<=[\w)\]] )<(?= )", "<="), (r"(?<= )<=(?= )", "<"),
                (r"(?<=[\w)\]] )>(?= )", ">="), (r"(?<= )>=(?= )", ">"),
                (r"(?<= )==(?= )", "!="), (r"(?<= )!=(?= )", "==")],
    "logic": [(r"(?<= )&&(?=\s)", "||"), (r"(?<= )\|\|(?=\s)", "&&"),
              (r"(?<=[(\s])!(?=[\w(])", "")],
    "condition": [(r"\bif \((?=[^;]*\)\s*\{?$)(.*)\)(\s*\{?)$", r"if (!(\1))\2"),
                  (r"\bif \((?=[^;]*\)\s*\{?$)(.*)\)(\s*\{?)$", r"if (0)\2")],
    "arithmetic": [(r"(?<=[\w)\]] )\+(?= )", "-"), (r"(?<=[\w)\]] )-(?= )", "+"),
                   (r"(?<=[\w)\]] )\|(?= )", "&"), (r"(?<= )<<(?= )", ">>"),
                   (r"(?<= )\+=(?= )", "-="), (r"(?<= )-=(?= )", "+="), (r"\+\+", "--")],
    "constant": [(r"(?<![\w.])0(?![\w.])", "1"), (r"(?<![\w.])1(?=[\w]*[^\w.])(?!\w*x)", "2"),
                 (r"(?<![\w.])([2-9]|[1-9]\d+)(?=u?l*\b)(?![.\w])",
                  lambda m: str(int(m.group()) + 1))],
    "statement": [(r"^\t+(?!return|goto|break|continue|case|default|else|do\b|struct|u32|u64|int|bool|"
                   r"size_t|const|static|char|void|pawl_\w+_t|s32|s64|u8|u16)[\w*>.\[\]()-]+(?: [-+|&]?= "
                   r"[^;]*|\([^;]*\)|\+\+|--);$",
                   lambda m: re.match(r"\t+", m.group()).group() + ";")],
    "return": [(r"\breturn (true|false);", lambda m: "return %s;" % ("false" if m.group(1) == "true" else "true")),
               (r"\breturn -E\w+;", "return 0;"),
               (r"\breturn (?!0;|-E|true|false|err\()[^;\n]+;", "return 0;"),
               (r"-E(INVAL|STALE|NOMEM|BUSY|AGAIN|DEADLK|NODEV|2BIG|TIMEDOUT)\b",
                lambda m: "-EIO")],
    "arguments": [(r"\b(\w+)\(([\w>.&*-]+), ([\w>.&*-]+)(?=[,)])", swap_arguments)],
    "jump": [(r"\bbreak;", "continue;"), (r"\bcontinue;", "break;")],
    "order": [(ACCESS, r"\1_relaxed("), (r"\bsmp_mb\(\);", ";")],
}


def code_lines(text):
    """The lines of a file without comments and strings; None where no mutant belongs."""
    text = COMMENT.sub(lambda m: re.sub(r"[^\n]", "\x01", m.group()), text)
    lines, inside, macro, busted = [], False, False, False
    for line in text.split("\n"):
        macro = line.startswith("#") or macro
        if line == "{" or (line.endswith("{") and not line.startswith(("\t", "struct", "enum", "union", "static const"))):
            inside = True
        # a planted bug, and what it does
        skip = not inside or macro or "BUSTED(" in line or busted or "BUG_ON" in line or not line.startswith("\t")
        lines.append(None if skip else line)
        busted = re.search(r"(?<!!)BUSTED\(", line) and not line.endswith((";", "{"))
        if line.startswith("}"):
            inside = False
        macro = macro and line.endswith("\\")
    return lines


class Mutant:
    def __init__(self, path, number, kind, old, new, lines):
        self.path, self.number, self.kind, self.old, self.new = path, number, kind, old, new
        around = lines[max(0, number - 1 - AROUND):number + AROUND]
        self.hash = hashlib.sha1("\n".join(around).encode()).hexdigest()[:12]

    def key(self):
        return self.path, self.hash, self.new.strip()

    def text(self):
        with open(os.path.join(TOP, self.path), encoding="utf-8") as file:
            lines = file.read().split("\n")
        lines[self.number - 1] = self.new
        return "\n".join(lines)

    def diff(self):
        with open(os.path.join(TOP, self.path), encoding="utf-8") as file:
            old = file.read()
        return "\n".join(difflib.unified_diff(old.split("\n"), self.text().split("\n"), "a/" + self.path,
                                              "b/" + self.path, n=AROUND, lineterm=""))

    def __str__(self):
        return "%s:%d %s: %s => %s" % (self.path, self.number, self.kind, self.old.strip(),
                                       self.new.strip())


class Patch:
    """A change from a file, as a mutant."""
    kind, number, hash = "patch", 0, ""

    def __init__(self, name):
        self.name = name
        with open(name, encoding="utf-8") as file:
            self.patch = file.read()
        self.path = re.search(r"^\+\+\+ (?:b/)?(\S+)", self.patch, re.M).group(1)

    def key(self):
        return self.path, self.name, ""

    def text(self):
        copy = os.path.join(HERE, "patched")
        shutil.copy(os.path.join(TOP, self.path), copy)
        subprocess.run(["patch", "-s", copy, self.name], check=True)
        with open(copy, encoding="utf-8") as file:
            return file.read()

    def diff(self):
        return self.patch

    def __str__(self):
        return "%s: %s" % (self.path, self.name)


def mutants(path, kinds):
    with open(os.path.join(TOP, path), encoding="utf-8") as file:
        text = file.read()
    lines = text.split("\n")
    for number, code in enumerate(code_lines(text), 1):
        for kind in kinds if code else ():
            for pattern, new in KINDS[kind]:
                for m in re.finditer(pattern, code):
                    # comments and strings stay unchanged
                    line = lines[number - 1]
                    part = re.match(re.compile(pattern), code) if pattern.startswith("^") else m
                    changed = line[:m.start()] + (m.expand(new) if isinstance(new, str) else new(part)) + \
                        line[m.end():]
                    if "\x01" not in changed and changed != line:
                        yield Mutant(path, number, kind, line, changed, lines)


def equivalents():
    """{(path, hash, new line): reason}; and the entries whose surroundings have changed."""
    known, changed = {}, []
    with open(os.path.join(TOP, "tests", "mutation", "equivalent.list"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("#") or not line.strip():
                continue
            path, digest, new, reason = line.rstrip("\n").split(" | ")
            with open(os.path.join(TOP, path), encoding="utf-8") as source:
                lines = source.read().split("\n")
            hashes = {hashlib.sha1("\n".join(lines[max(0, n - AROUND):n + AROUND + 1]).encode())
                      .hexdigest()[:12] for n in range(len(lines))}
            if digest in hashes:
                known[path, digest, new] = reason
            else:
                changed.append(line.rstrip("\n"))
    return known, changed


def run(command, seconds, log):
    """The exit status of a command, in a group of its own; None if it did not end in time."""
    env = dict(os.environ, PAWL_TEST_PATIENCE="8", CK_TIMEOUT_MULTIPLIER="0.4", LC_ALL="C")
    with open(log, "wb") as out:
        process = subprocess.Popen(["bash", "-c", command], cwd=OBJ, stdout=out, stderr=out, env=env,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def make(targets, jobs):
    return run("make -s -j%d -f %s/Makefile O= %s" % (jobs, SRC, " ".join(targets)), 900,
               os.path.join(HERE, "make.log")) == 0


def prepare(jobs):
    """A copy of the sources, whose times change only with the files, and a build of it."""
    os.makedirs(OBJ, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=TOP, check=True,
                            stdout=subprocess.PIPE).stdout.decode().split("\n")
    for name in filter(None, listed):
        old, new = os.path.join(TOP, name), os.path.join(SRC, name)
        if not os.path.isfile(old):
            continue
        with open(old, "rb") as file:
            data = file.read()
        if os.path.exists(new):
            with open(new, "rb") as file:
                if file.read() == data:
                    continue
        os.makedirs(os.path.dirname(new), exist_ok=True)
        shutil.copy(old, new)
    if not os.path.exists(os.path.join(OBJ, ".config")):
        make(["defconfig"], 1)
        # Programs link faster without link-time optimization; a change that causes a warning
        # is no mutant.
        with open(os.path.join(OBJ, ".config"), encoding="utf-8") as file:
            config = re.sub(r"^CONFIG_LTO=y", "# CONFIG_LTO is not set", file.read(), flags=re.M)
            config = re.sub(r"^# CONFIG_WERROR is not set", "CONFIG_WERROR=y", config, flags=re.M)
        with open(os.path.join(OBJ, ".config"), "w", encoding="utf-8") as file:
            file.write(config)
        make(["olddefconfig"], 1)
    if not make(["all", "tests"] + ["tests/%s.list" % l for l in LISTS], jobs):
        with open(os.path.join(HERE, "make.log"), encoding="utf-8", errors="replace") as file:
            sys.exit("the sources do not build:\n" + file.read()[-3000:])


def tests():
    """[(name, command)] of all lists."""
    found = []
    for name in LISTS:
        with open(os.path.join(OBJ, "tests", name + ".list"), encoding="utf-8") as file:
            found += [line.rstrip("\n").split("\t")[0::2] for line in file if line.strip()]
    return [(n, c) for n, c in found if not NOT.search(n)]


def stages(all_tests, path):
    """The tests of a file, of its layer, and all others."""
    stem = os.path.splitext(os.path.basename(path))[0]
    layer = next(l for l in LAYERS if path.startswith(l + "/"))
    own = [t for t in all_tests if re.search(r"(^|/)test_(mx_)?%s$" % stem, t[0])]
    its = [t for t in all_tests if t not in own and re.search(OF_LAYER[layer], t[0])]
    rest = [t for t in all_tests if t not in own and t not in its]
    return [own, its, rest]


def programs(stage):
    """What make has to build for these tests."""
    found = set()
    for _, command in stage:
        found.update(p[2:] for p in re.findall(r"\./tests/[\w/]+", command))
        if ".sh" in command or "fuzz" in command:
            return ["all", "tests"]
    return sorted(found)


def code_of(path):
    """The machine code of a source file in the build, or None."""
    objects = os.path.join(OBJ, os.path.splitext(path)[0] + ".o")
    found = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", objects], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, check=False)
    data = subprocess.run(["objcopy", "-O", "binary", "-j", ".rodata", "-j", ".data", objects, "/dev/stdout"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return hashlib.sha1(found.stdout + data.stdout).hexdigest()


def find(mutant, all_tests, jobs, quick):
    """The test that finds a mutant, "" if none does, or None if it is no mutant."""
    path = os.path.join(SRC, mutant.path)
    with open(path, encoding="utf-8") as file:
        original = file.read()
    before = code_of(mutant.path)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(mutant.text())
        if mutant.kind == "order":
            if run("python3 %s/tools/check-edges.py %s" % (SRC, SRC), 60, os.path.join(HERE, "edges.log")):
                return "check-edges"
        # headers are compiled into several objects
        if not make([os.path.splitext(mutant.path)[0] + ".o"] if mutant.path.endswith(".c") else ["lib"], jobs):
            return None
        if mutant.path.endswith(".c") and mutant.kind != "patch" and code_of(mutant.path) == before:
            return None
        for stage in stages(all_tests, mutant.path)[:2 if quick else 3]:
            if stage and not make(programs(stage), jobs):
                return "the build"
            for name, command in stage:
                status = run(command, SLOWEST, os.path.join(HERE, "test.log"))
                if status not in (0, 77):
                    return name + (" (no end)" if status is None else "")
        return ""
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(original)


def main():
    p = argparse.ArgumentParser(description="Sample mutants and run the tests on each.")
    p.add_argument("--count", type=int, default=30)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--file", action="append", default=[])
    p.add_argument("--kind", action="append", default=[], choices=sorted(KINDS))
    p.add_argument("--plant", action="append", default=[])
    p.add_argument("--quick", action="store_true", help="the tests of the layer only")
    p.add_argument("--list", action="store_true", help="print the sample only")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = p.parse_args()
    end = time.monotonic() + args.minutes * 60
    files = args.file or sorted(os.path.relpath(f, TOP) for layer in LAYERS
                                for f in glob.glob(os.path.join(TOP, layer, "*.[ch]")))
    known, changed = equivalents()
    for line in changed:
        print("the code around an equivalent mutant has changed, judge it again: " + line)
    if args.plant:
        sample = [Patch(os.path.abspath(name)) for name in args.plant]
    else:
        sample = [m for f in files for m in mutants(f, args.kind or sorted(KINDS))]
        # each kind equally often, however many positions it has
        by_kind = {}
        for m in sample:
            by_kind.setdefault(m.kind, []).append(m)
        rnd = random.Random(args.seed)
        for kind in by_kind.values():
            rnd.shuffle(kind)
        sample = []
        while any(by_kind.values()):
            for kind in sorted(by_kind):
                if by_kind[kind]:
                    sample.append(by_kind[kind].pop())
    if args.list:
        print("\n".join(map(str, sample[:args.count])))
        return 0
    prepare(args.jobs)
    all_tests = tests()
    count = {"found": 0, "survived": 0, "equivalent": 0}
    with open(os.path.join(HERE, "survivors.txt"), "w", encoding="utf-8") as out:
        for mutant in sample:
            if count["found"] + count["survived"] == args.count or time.monotonic() > end:
                break
            if mutant.key() in known:
                count["equivalent"] += 1
                continue
            start = time.monotonic()
            by = find(mutant, all_tests, args.jobs, args.quick)
            if by is None:
                continue
            count["found" if by else "survived"] += 1
            print("%-9s %4.0f s  %s%s" % ("found" if by else "SURVIVED", time.monotonic() - start, mutant,
                                          ", by " + by if by else ""), flush=True)
            if not by:
                out.write("%s\n%s | %s | %s | why\n%s\n\n" % ((mutant,) + mutant.key() + (mutant.diff(),)))
                out.flush()
    print("mutation seed=%d found=%d survived=%d equivalent=%d" % (
        args.seed, count["found"], count["survived"], count["equivalent"]))
    return 1 if count["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
