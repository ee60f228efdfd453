#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plant small mistakes in the sources, one at a time, and see whether the tests find them.

usage: mutate.py [--count N] [--seed S] [--minutes M] [--file PATH]... [--kind KIND]...
                 [--layer LAYER]... [--plant PATCH...] [--again] [--asan] [--measure] [--list]
                 [--jobs J]

A mutant is one change of one line: another comparison, a boundary or constant moved by one, a
condition negated, a statement or call left out, two arguments swapped, another return code, a
weaker memory order.  N of them are sampled with seed S from pool, exec, core, device, compat
and tools/pawl, as many of each layer and kind.  A mutant that does not compile without a
warning, or compiles to the same code, is replaced by another one.

A test can find a mutant only if it executes the line.  So all tests run once in a build with
counters, and a mutant gets the tests that execute its line: first check-edges for a memory order,
a statement left out or a patch; then the tests with the name of the file, and the others, fastest
first, until one fails, for a minute.  Last come the programs of make check-model for the layer, whose
lines are not counted.  --measure counts again; until then, lines that have changed since the last
count are looked up by the lines around them.

J mutants are tried at a time, each in a copy of the build, where the commands that make has
saved are run for what depends on the changed file.

The verdicts are kept in build/mutation/results.txt.  A later run goes on from there: it leaves
out what has been judged, but --again tries the survivors again.  The survivors, with their changes,
are written to build/mutation/survivors.txt.  A survivor that behaves like the original belongs in
equivalent.list, with a reason.  It is left out while the lines around it are the same, and
reported when they have changed.  --plant tries the changes of patches instead.  --asan runs the tests
under the address sanitizer, as make check-all does in one of its builds; with --again it finds the
survivors that leak or write beyond an object.  The exit status is 1 if a mutant of this run survived.
"""
import argparse
import concurrent.futures
import difflib
import functools
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(TOP, "build", "mutation")
SRC, OBJ = os.path.join(HERE, "src"), os.path.join(HERE, "obj")
COUNTED, COUNTERS = os.path.join(HERE, "counted", "src"), os.path.join(HERE, "counted", "obj")
EXECUTED = os.path.join(HERE, "executed.json")
RESULTS = os.path.join(HERE, "results.txt")
LAYERS = ("pool", "exec", "core", "device", "compat", "tools/pawl")
RUNNING = set()     # sessions of commands
AROUND = 3          # lines above and below that belong to a mutant's hash
ASAN = False        # the address sanitizer
ENOUGH = 60         # seconds of tests after which a mutant has survived the slower ones

# the programs of make check-model that explore a layer
MODELS = {"pool": "exec core", "exec": "exec core engine", "core": "host api core engine graph", "device": "device"}
MODEL = "./tests/model/model_{0} -j 1 -T 0.1 && ./tests/model/model_{0} -w -m random -j 1 -T 0.03"
# the lists of tests of the whole library
LISTS = ("unit", "fuzz", "lin", "stress", "fault", "tools")
# those that are run with PAWL_TEST_SHORT first
LONG = re.compile(r"fault/|tools/test_infer")
# need what a machine may lack, or are tests of other programs
NOT = re.compile(r"mxnet/run|test_python|abi/|load/|docs/|serve|test_(realtime|probes|load|judge|demo)")

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
        self.numbers = [number]
        around = lines[max(0, number - 1 - AROUND):number + AROUND]
        self.hash = hashlib.sha1("\n".join(around).encode()).hexdigest()[:12]

    def key(self):
        return self.path, self.hash, self.new.strip()

    def text(self):
        # not of TOP, which may be edited during a run
        with open(os.path.join(SRC, self.path), encoding="utf-8") as file:
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
    kind, hash = "patch", ""

    def __init__(self, name):
        self.name = name
        with open(name, encoding="utf-8") as file:
            self.patch = file.read()
        self.path = re.search(r"^\+\+\+ (?:b/)?(\S+)", self.patch, re.M).group(1)
        # with the lines around: the changed ones may be comments
        self.numbers = [int(first) + i for first, n in re.findall(r"^@@ -(\d+),(\d+)", self.patch, re.M)
                        for i in range(int(n))]

    def key(self):
        return self.path, self.name, ""

    def text(self):
        with tempfile.NamedTemporaryFile("r+", encoding="utf-8") as copy:
            subprocess.run(["patch", "-s", "-o", copy.name, os.path.join(TOP, self.path), self.name], check=True)
            return copy.read()

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
            path, digest, new = line.rstrip("\n").split(" | ", 2)
            new, reason = new.rsplit(" | ", 1)      # code may have bars, too
            with open(os.path.join(TOP, path), encoding="utf-8") as source:
                lines = source.read().split("\n")
            hashes = {hashlib.sha1("\n".join(lines[max(0, n - AROUND):n + AROUND + 1]).encode())
                      .hexdigest()[:12] for n in range(len(lines))}
            if digest in hashes:
                known[path, digest, new] = reason
            else:
                changed.append(line.rstrip("\n"))
    return known, changed


def execute(command, seconds, log, cwd=OBJ, **variables):
    """The exit status of a command, in a session of its own; None if it did not end in time."""
    env = dict(os.environ, PAWL_TEST_PATIENCE="8", CK_TIMEOUT_MULTIPLIER="0.4", LC_ALL="C", **variables)
    with open(log, "wb") as out:
        process = subprocess.Popen(["sh", "-ec", command], cwd=cwd, stdout=out, stderr=out, env=env,
                                   stdin=subprocess.DEVNULL, start_new_session=True)
        RUNNING.add(process.pid)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_session(process.pid)
            process.wait()
            RUNNING.discard(process.pid)


def kill_session(pid):
    """Check puts each test into a group of its own."""
    subprocess.run(["pkill", "-KILL", "-s", str(pid)], check=False)


def stop(number, _frame):
    """What the tests started ends with this program."""
    for pid in list(RUNNING):
        kill_session(pid)
    os._exit(128 + number)


def build(src, obj, jobs, options, flags, *more):
    """Copy the sources, whose times change only with the files, and build them."""
    os.makedirs(obj, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=TOP, check=True,
                            stdout=subprocess.PIPE).stdout.decode().split("\n")
    for name in filter(None, listed):
        old, new = os.path.join(TOP, name), os.path.join(src, name)
        if not os.path.isfile(old):
            if os.path.isfile(new):
                os.unlink(new)
            continue
        with open(old, "rb") as file:
            data = file.read()
        if os.path.exists(new):
            with open(new, "rb") as file:
                if file.read() == data:
                    continue
            os.unlink(new)
        os.makedirs(os.path.dirname(new), exist_ok=True)
        shutil.copy(old, new)
    log = os.path.join(HERE, "make.log")
    make = "make -s -f %s/Makefile O= CC=gcc CXX=g++ CFLAGS='%s' " % (src, flags)
    if not os.path.exists(os.path.join(obj, ".config")):
        execute(make + "defconfig", 60, log, obj)
        with open(os.path.join(obj, ".config"), "a", encoding="utf-8") as file:
            file.write("".join("CONFIG_%s\n" % option for option in options))
        execute(make + "olddefconfig", 60, log, obj)
    goals = ["all", "tests"] + ["tests/%s.list" % name for name in LISTS] + list(more)
    if execute(make + "-j%d %s" % (jobs, " ".join(goals)), 3600, log, obj):
        with open(log, encoding="utf-8", errors="replace") as file:
            sys.exit("the sources do not build:\n" + file.read()[-3000:])


def tests(obj):
    """{name: command} of all lists."""
    found = {}
    for name in LISTS:
        with open(os.path.join(obj, "tests", name + ".list"), encoding="utf-8") as file:
            for line in filter(str.strip, file):
                name, _, command = line.rstrip("\n").split("\t")
                if not NOT.search(name):
                    found[name] = command
    return found


def read_counters(folder):
    """{file of a layer: [line numbers]} that were executed, from the counters below a folder."""
    found = {}
    data = glob.glob(folder + "/**/*.gcda", recursive=True)
    for name in data:
        notes = os.path.splitext(name)[0] + ".gcno"
        os.symlink(notes[len(folder):], notes)
    out = subprocess.run(["gcov", "--json-format", "--stdout"] + data, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=True, cwd=folder).stdout if data else b""
    for entry in (e for text in out.splitlines() for e in json.loads(text)["files"]):
        path = os.path.relpath(os.path.join(COUNTERS, entry["file"]), COUNTED)
        if path.startswith(LAYERS):
            found.setdefault(path, set()).update((line["line_number"], line["count"] > 0)
                                                 for line in entry["lines"])
    return found


def count_test(name, command):
    """What a test executes, and how long it takes without counters, or None if it fails."""
    folder = os.path.join(HERE, "gcda", name.replace("/", "-"))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    execute(command, 600, folder + ".log", COUNTERS, GCOV_PREFIX=folder, PAWL_TEST_SHORT="1")
    lines = read_counters(folder)
    shutil.rmtree(folder)
    start = time.monotonic()
    status = execute(tests(OBJ)[name], 100, folder + ".log")
    seconds = time.monotonic() - start
    print("%-7s %5.1f s  %s" % ({0: "counted", 77: "skipped"}.get(status, "FAILED"), seconds, name), flush=True)
    return None if status else [seconds, {path: sorted(n for n, hit in found if hit) for path, found in
                                          lines.items()}], \
        {path: {n for n, _ in found} for path, found in lines.items()}


def count_lines(jobs):
    """Run all tests with counters, and write EXECUTED."""
    shutil.rmtree(COUNTED, ignore_errors=True)
    build(COUNTED, COUNTERS, jobs, ["COVERAGE=y", "LTO=n"], "-O0 -g0")
    all_tests, code = {}, {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, (result, lines) in zip(tests(COUNTERS), pool.map(count_test, *zip(*tests(COUNTERS).items()))):
            if result:
                all_tests[name] = result
            for path, numbers in lines.items():
                code.setdefault(path, set()).update(numbers)
    with open(EXECUTED, "w", encoding="utf-8") as file:
        json.dump({"tests": all_tests, "code": {path: sorted(n) for path, n in code.items()}}, file)


@functools.lru_cache(None)
def counted_lines(path):
    """{line number: line number when the lines were counted} of a file."""
    texts = []
    for top in (TOP, COUNTED):
        if not os.path.exists(os.path.join(top, path)):
            return {}
        with open(os.path.join(top, path), encoding="utf-8") as file:
            texts.append(file.read().split("\n"))
    return {a + i + 1: b + i + 1 for a, b, n in difflib.SequenceMatcher(None, *texts, autojunk=False)
            .get_matching_blocks() for i in range(n)}


@functools.lru_cache(None)
def includes(path, header):
    with open(os.path.join(TOP, path), encoding="utf-8") as file:
        return re.search(r'^#include ["<](\S*/)?%s[">]' % re.escape(header), file.read(), re.M) is not None


def includes_it(name, header):
    """Does the source of a test include a file, or a header beside it that does?"""
    source = glob.glob(os.path.join(TOP, "tests", name + ".c*"))
    beside = [h for f in source for h in glob.glob(os.path.join(os.path.dirname(f), "*.h"))
              if includes(os.path.relpath(f, TOP), os.path.basename(h))]
    return any(includes(os.path.relpath(f, TOP), header) for f in source + beside)


def tests_of(mutant, all_tests, executed):
    """The names of the tests that execute a mutant's line, in the order in which they run."""
    stem = os.path.splitext(os.path.basename(mutant.path))[0]
    old, code = counted_lines(mutant.path), executed["code"].get(mutant.path, [])
    numbers, exact = set(), True
    # a header that nothing counts, of constants and types: what executes the files that include it
    users = set() if code else {f for f in executed["code"] if includes(f, os.path.basename(mutant.path))}
    for wanted in mutant.numbers:
        # a line inside a statement has no counter: that of its first line
        number = max((n for n in old if n <= wanted), default=0)
        exact = exact and number == wanted
        numbers.add(max((n for n in code if n <= old.get(number, 0)), default=0))
    chosen = []
    for name in all_tests:
        seconds, lines = executed["tests"].get(name, (None, {}))
        own = re.search(r"(^|/)test_(\w+_)?%s" % stem, name) is not None
        if seconds is None or not numbers.isdisjoint(lines.get(mutant.path, [])) or \
                not exact and mutant.path in lines or not code and lines.keys() & users or \
                (mutant.path.endswith(".c") or not code and not users) and \
                includes_it(name, os.path.basename(mutant.path)):
            chosen.append((not own, 1 if seconds is None else seconds, name))
    return [name for _, _, name in sorted(chosen)]


class Commands:
    """The commands that make has saved in a build, and what the targets are made of."""

    def __init__(self, obj):
        self.command, self.parts, self.users = {}, {}, {}
        for name in glob.glob(obj + "/**/.*.cmd", recursive=True):
            with open(name, encoding="utf-8") as file:
                text = file.read()
            target, command = re.match(r"savedcmd_(\S+) := (.*)", text).groups()
            # without a new list of headers
            command = re.sub(r"-MMD -MP -MF \S+", "", command)
            self.command[target] = command.replace("$(pound)", "#").replace("$$", "$")
            words = [os.path.normpath(word) for word in re.findall(r"[\w./-]+", command)]
            self.parts[target] = [w for w in words if w != target and os.path.exists(os.path.join(obj, w))]
            notes = os.path.join(obj, os.path.dirname(target), "." + os.path.basename(target) + ".d")
            if os.path.exists(notes):
                with open(notes, encoding="utf-8") as file:
                    for word in file.read().split():
                        if word.startswith(SRC):
                            self.users.setdefault(os.path.relpath(word, SRC), []).append(target)


class Place:
    """A copy of the sources and of the build, for one mutant at a time."""

    def __init__(self, number, commands):
        self.here = os.path.join(HERE, str(number))
        self.src, self.obj = os.path.join(self.here, "src"), os.path.join(self.here, "obj")
        self.commands, self.changed = commands, set()
        shutil.rmtree(self.here, ignore_errors=True)
        for old, new in ((SRC, self.src), (OBJ, self.obj)):
            shutil.copytree(old, new, symlinks=True, copy_function=self.link)

    @staticmethod
    def link(old, new):
        """One file in all places; what a command overwrites is copied."""
        (shutil.copy if old.endswith(".names") else os.link)(old, new)

    def log(self):
        return os.path.join(self.here, "log")

    def make(self, target):
        """Whether a target is as the changed source makes it, or None if it cannot be made."""
        if target in self.known:
            return self.known[target]
        made = False
        if target in self.commands.users.get(self.path, ()):
            made = True
        for part in self.commands.parts.get(target, ()):
            below = self.make(part)
            if below is None:
                return None
            made = made or below
        if made:
            os.unlink(os.path.join(self.obj, target))
            self.changed.add(target)
            if execute(self.commands.command[target].replace(SRC, self.src), 300, self.log(), self.obj):
                return None
        self.known[target] = made
        return made

    def plant(self, mutant):
        self.path, self.known = mutant.path, {}
        os.unlink(os.path.join(self.src, mutant.path))
        with open(os.path.join(self.src, mutant.path), "w", encoding="utf-8") as file:
            file.write(mutant.text())

    def restore(self):
        pairs = [(os.path.join(SRC, self.path), os.path.join(self.src, self.path))]
        pairs += [(os.path.join(OBJ, target), os.path.join(self.obj, target)) for target in self.changed]
        self.changed = set()
        for old, new in pairs:
            if os.path.exists(new):
                os.unlink(new)
            os.link(old, new)

    def same_code(self, target):
        """Whether an object has the machine code of the original."""
        def code(obj):
            name = os.path.join(obj, target)
            found = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", name], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, check=False).stdout
            data = subprocess.run(["objcopy", "-O", "binary", "-j", ".rodata*", "-j", ".data*", name, "/dev/stdout"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
            return found.split(b"\n", 3)[3:] + [data]
        return code(self.obj) == code(OBJ)

    def find(self, mutant, names, all_tests, executed):
        """The test that finds a mutant, "" if none does, or None if it is no mutant."""
        self.plant(mutant)
        try:
            if mutant.kind in ("order", "statement", "patch") and \
                    execute("python3 %s/tools/check-edges.py %s" % (SRC, self.src), 60, self.log()):
                return "check-edges"
            objects = [t for t in self.commands.users.get(mutant.path, ()) if t.startswith(LAYERS)]
            for target in objects:
                if self.make(target) is None:
                    return None
            if mutant.kind != "patch" and all(map(self.same_code, objects)):
                return None
            # the long tests are short first
            runs = [(name, "1" if LONG.search(name) else "") for name in names] + \
                [(name, "") for name in names if LONG.search(name)]
            models = MODELS.get(mutant.path.split("/", maxsplit=1)[0], "").split() if not ASAN else []
            spent = 0
            for name, short in runs + [("model_" + name, "") for name in models]:
                # as long as the test takes on an idle machine
                spent += executed["tests"].get(name, [0])[0] / (5 if short else 1)
                if name in all_tests and spent > ENOUGH:
                    continue
                command = all_tests.get(name) or MODEL.format(name[6:])
                programs = re.findall(r"\./(tests/[\w/]+)", command) or \
                    ["tools/pawl/pawl", "tests/tools/pawl-cuda.so"]
                if None in map(self.make, programs):
                    return "the build"
                limit = (15 if ASAN else 5) * (1 + executed["tests"].get(name, [20 if name in all_tests else 60])[0])
                short = {"PAWL_TEST_SHORT": short} if short else {}
                status = execute(command, limit, self.log(), self.obj, **short)
                if status is None and execute(command, limit, self.log(), OBJ, **short) is None:
                    continue    # the machine is too busy
                if status not in (0, 77):
                    return name + (" (no end)" if status is None else "")
            return ""
        finally:
            self.restore()


class Results:
    """The verdicts so far, by key."""

    def __init__(self):
        self.all, self.lock = {}, threading.Lock()
        if os.path.exists(RESULTS):
            with open(RESULTS, encoding="utf-8") as file:
                for line in file:
                    verdict, _, _, kind, path, digest, new = line.rstrip("\n").split("\t", 6)
                    new, by = new.rsplit("\t", 1)      # code may have tabs, too
                    self.all[path, digest, new] = verdict, kind, by

    def add(self, mutant, verdict, seconds, seed, by):
        with self.lock, open(RESULTS, "a", encoding="utf-8") as file:
            file.write("\t".join((verdict, "%.0f" % seconds, str(seed), mutant.kind) + mutant.key() + (by,)) + "\n")
            self.all[mutant.key()] = verdict, mutant.kind, by

    def summary(self, population, known):
        """Tables by layer and kind of the mutants that the sources still have."""
        rows = {}
        for key, (verdict, kind, _) in self.all.items():
            if key not in population or verdict == "none":
                continue
            verdict = "equivalent" if key in known else verdict
            for row in ("all", next(l for l in LAYERS if key[0].startswith(l + "/")), kind):
                rows.setdefault(row, {}).setdefault(verdict, []).append(key)
        lines = ["%-12s %6s %6s %8s %10s %6s" % ("", "judged", "found", "survived", "equivalent", "found")]
        for row in (*LAYERS, *sorted(KINDS), "all"):
            n = [len(rows.get(row, {}).get(v, ())) for v in ("found", "survived", "equivalent")]
            if sum(n):
                lines.append("%-12s %6d %6d %8d %10d %5.0f %%" % (row, sum(n), *n, 100 * n[0] / max(1, n[0] + n[1])))
        return "\n".join(lines)


def sample_of(population, seed):
    """All mutants in an order in which each layer and each kind comes equally often."""
    groups = {}
    for m in population:
        layer = next(l for l in LAYERS if m.path.startswith(l + "/"))
        groups.setdefault(layer, {}).setdefault(m.kind, []).append(m)
    rnd, sample = random.Random(seed), []
    for kinds in groups.values():
        for some in kinds.values():
            rnd.shuffle(some)
    while groups:
        for layer, kinds in sorted(groups.items()):
            # the kind that has had its turn becomes the last
            kind = next(iter(kinds))
            some = kinds.pop(kind)
            sample.append(some.pop())
            if some:
                kinds[kind] = some
            if not kinds:
                del groups[layer]
    return sample


def main():
    p = argparse.ArgumentParser(description="Sample mutants and run the tests on each.")
    p.add_argument("--count", type=int, default=30)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--file", action="append", default=[])
    p.add_argument("--kind", action="append", default=[], choices=sorted(KINDS))
    p.add_argument("--layer", action="append", default=[], choices=LAYERS)
    p.add_argument("--plant", action="extend", nargs="+", default=[])
    p.add_argument("--again", action="store_true", help="the survivors")
    p.add_argument("--asan", action="store_true", help="under the address sanitizer")
    p.add_argument("--measure", action="store_true", help="count again which lines the tests execute")
    p.add_argument("--list", action="store_true", help="print the sample only")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = p.parse_args()
    global ASAN, OBJ
    if args.asan:
        ASAN, OBJ = True, OBJ + "-asan"
    end = time.monotonic() + args.minutes * 60
    files = sorted(os.path.relpath(f, TOP) for layer in LAYERS for f in glob.glob(os.path.join(TOP, layer, "*.[ch]")))
    population = {m.key(): m for f in files for m in mutants(f, sorted(KINDS))}
    known, changed = equivalents()
    for line in changed:
        print("the code around an equivalent mutant has changed, judge it again: " + line)
    os.makedirs(HERE, exist_ok=True)
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, stop)
    results = Results()
    if args.plant:
        sample = [Patch(os.path.abspath(name)) for name in args.plant]
    else:
        sample = [m for m in population.values()
                  if (not args.file or m.path in args.file) and (not args.kind or m.kind in args.kind)
                  and (not args.layer or m.path.startswith(tuple(args.layer)))
                  and (results.all.get(m.key(), ("",))[0] == "survived" and m.key() not in known if args.again
                       else m.key() not in results.all)]
        sample = sample_of(sample, args.seed)
    if args.list:
        print("\n".join(map(str, sample[:args.count])))
        return 0
    # Programs link faster without link-time optimization; a change that causes a warning is no mutant.
    # The invariants and bounds are those that the builds of make check-all check; the model defines
    # functions that gcc knows as soon as it has any sanitizer.
    options = ["LTO=n", "WERROR=y", "DEBUG_ENGINE=2"]
    if ASAN:
        build(SRC, OBJ, args.jobs, options + ["SANITIZE_ADDRESS=y", "CC_OPTIMIZE_OG=y"], "-g0")
    else:
        build(SRC, OBJ, args.jobs, options, "-g0 -fsanitize=bounds -fsanitize-undefined-trap-on-error "
              "-Wno-builtin-declaration-mismatch", "model")
    if args.measure or not os.path.exists(EXECUTED):
        count_lines(args.jobs)
    with open(EXECUTED, encoding="utf-8") as file:
        executed = json.load(file)
    # tests that fail or are skipped were not counted; new ones have not been yet
    counted = tests(COUNTERS)
    all_tests = {n: c for n, c in tests(OBJ).items() if n in executed["tests"] or n not in counted}
    commands = Commands(OBJ)
    count = {"found": 0, "survived": 0, "equivalent": 0}
    lock, rest = threading.Lock(), iter(sample)
    kind = "asan-" if ASAN else "patch-" if args.plant else ""

    def work(place):
        while True:
            with lock:
                mutant = next(rest, None)
                if not mutant or sum(count.values()) >= args.count or time.monotonic() > end:
                    return
            start, by, names = time.monotonic(), "", []
            if mutant.key() in known:
                verdict = "equivalent"
            else:
                names = tests_of(mutant, all_tests, executed)
                by = place.find(mutant, names, all_tests, executed)
                verdict = "none" if by is None else "found" if by else "survived"
            seconds = time.monotonic() - start
            if not args.plant:
                note = by or ("" if names or verdict != "survived" else "not executed")
                results.add(mutant, verdict, seconds, args.seed, note)
            if by is None:
                continue
            with lock:
                count[verdict] += 1
                print("%-10s %4.0f s  %s%s" % (verdict if by else verdict.upper(), seconds, mutant, ", by " + by if by
                      else "" if names else ", not executed"), flush=True)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for _ in pool.map(work, [Place("%s%d" % (kind, i), commands) for i in range(args.jobs)]):
            pass
    with open(os.path.join(HERE, "survivors.txt"), "w", encoding="utf-8") as out:
        for key, (verdict, _, note) in results.all.items():
            if verdict == "survived" and key in population and key not in known:
                m = population[key]
                out.write("%s%s\n%s | %s | %s | why\n%s\n\n" % ((m, note and ", " + note) + key + (m.diff(),)))
    print("mutation seed=%d %s" % (args.seed, " ".join("%s=%d" % c for c in count.items())))
    print(results.summary(population, known))
    return 1 if count["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
