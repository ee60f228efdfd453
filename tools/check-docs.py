#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Check what the documents say about the sources.

In README.md, CONTRIBUTING, tests/README, python/README.md and Documentation/*.md:
  - a file that is named exists, in the tree or in the folder of the document;
  - `f()` is a function or macro of the sources, or one of OTHERS;
  - `f()`, `g()` (file) and, in tables, `f()`, `g()`, file: the functions are defined there;
  - a link leads to a file, and to a heading in it;
  - test_x is the name of a test or of a suite;
  - the first section of design.md, the walk of an op, names each .c file of the layers once;
  - the numbers listed in NUMBERS are those of the sources;
  - errors.md and progress.md name each public call, and an example calls it.
"""
import glob
import os
import re
import sys

TOP = sys.argv[1] if len(sys.argv) > 1 else "."
LAYERS = ("include", "pool", "device", "exec", "core", "compat", "tools", "tests", "examples", "python")
PATH = r"(?:%s|Documentation|configs|cmake|\.ci)/[\w./*<>{},-]*\w" % "|".join(LAYERS)
SOURCE = r"(?:%s)/[\w/-]+\.(?:c|h|cc|py|sh)" % "|".join(LAYERS)
CALLS = r"`[a-z_]\w*\(\)`(?:(?:, | and |, and )`[a-z_]\w*\(\)`)*"
# what make writes, and files of other projects
OTHER_FILES = re.compile(r"tests/\w+\.list$|tests/bench/out/|tests/model/model_\w+$|include/pawl/pawl\.cdef$|/\w+_x(?:\.c)?$")
# functions of CMake, and examples of names
OTHERS = {"add_subdirectory", "grant"}

# calls that return no error
NO_ERRORS = {"pawl_config_init", "pawl_interrupt", "pawl_version"}

# calls that no example makes: it needs a stream of the CUDA runtime
NO_EXAMPLE = {"pawl_stream_adopt"}

# the first section of design.md
WALK = "From push to completion"

# (document, text with numbers in parentheses, what they are in the sources): an expression of
# macros and of options (CONFIG_*), or a file and a regular expression whose group is one.
NUMBERS = [
    ("limits.md", r"config\.max_ops, (64) to (2\^20 − 4096)",
     ("core/engine.c", r'"max_ops", c->max_ops, (\d+), (.*?) \}')),
    ("limits.md", r"config\.max_vars, at most (2\^26)", "1 << VAR_BITS"),
    ("limits.md", r"at most (2\^21 − 1025); a push", "(1 << BLOCK_BITS) - RM_MAX - 1"),
    ("limits.md", r"vars in one op \| (\d+),", "16 << (4 * 3 - 1)"),
    ("limits.md", r"more than 4 vars at once \| with up to 16: (\d+), or max_ops",
     ("core/engine.c", r"\[POOL_EXT0\][^\n]*\(ops, (\d+)")),
    ("limits.md", r"up to 256: max_ops / (\d+), from (\d+) to (\d+); "
                  r"up to 4096: max_ops / (\d+), from (\d+) to (\d+); "
                  r"up to 32768: max_ops / (\d+), from (\d+) to (\d+)",
     ("core/engine.c", r"ext1 = [^\n]*max_ops / (\d+), (\d+)u\), (\d+)u[^\n]*\n"
                       r"[^\n]*max_ops / (\d+), (\d+)u\), (\d+)u[^\n]*\n"
                       r"[^\n]*max_ops / (\d+), (\d+)u\), (\d+)u")),
    ("limits.md", r"config\.max_threads, at most (\d+)", "(1 << SLOT_BITS) - 1"),
    ("limits.md", r"other devices \| (\d+), with (\d+) compute streams each; (\d+) adopted",
     "MAX_DEVICES", "MAX_STREAMS", "MAX_ADOPTED"),
    ("devices.md", r"At most (\d+) devices, (\d+) compute streams each, (\d+) adopted",
     "MAX_DEVICES", "MAX_STREAMS", "MAX_ADOPTED"),
    ("devices.md", r"A lane has up to (\d+)\s+events", "LANE_EVENTS"),
    ("limits.md", r"read-mostly mode at once \| (\d+),", "RM_MAX"),
    ("limits.md", r"bulk \(libpawl_mx\) \| (\d+), and (\d+) different", "BULK_MAX", "BULK_VARS"),
    ("limits.md", r"completion queues \| (\d+) per engine", "CQ_MAX"),
    ("limits.md", r"a position in a ring (\d+) bits", "RING_POS_BITS"),
    ("limits.md", r"an op has at most (\d+) of its batch", "CONFIG_EXEC_BATCH - 1"),
    ("limits.md", r"A turn ends after\s+(\d+) µs", "TURN_NS / 1000"),
    ("limits.md", r"all turns together take (\d+) ms", "ROUND_NS / 1e6"),
    ("limits.md", r"up to (\d+) of them may run\s+before a thread reads the clock \((\d+), if other",
     "STEP_ALONE", "STEP_SHARED"),
    ("limits.md", r"at the latest (\d+) ms after it became ready", "LATE_NS / 1e6"),
    ("limits.md", r"for (2) µs, or\s+for (100) µs if it continues to push",
     "LEAVE_FIRST_NS / 1000", "LEAVE_JUDGE_NS / 1000"),
    ("limits.md", r"no more than once in (6\.4) ms", "LEAVE_JUDGE_NS * 2**LEAVE_TRIES / 1e6"),
    ("limits.md", r"more than (\d+) pieces of work per spinner",
     ("exec/policy.h", r"#define BACKLOG\s+(\d+)u")),
    ("limits.md", r"(\d+) KiB of objects", "SLAB_MAX / 1024"),
    ("design.md", r"stays at a lane for (\d+) µs", "TURN_NS / 1000"),
    ("design.md", r"take more than (\d+) µs, and after", "CHECK_NS / 1000"),
    ("design.md", r"down to one in (\d+), or one in (\d+) if", "STEP_ALONE", "STEP_SHARED"),
    ("design.md", r"for (\d+) µs, and twice as\s+long each further time, up to (\d+) µs, as long "
                  r"as the maker takes one op per (\d+) ns",
     "LEAVE_FIRST_NS / 1000", "LEAVE_MOST_NS / 1000", "FAST_NS"),
    ("design.md", r"workers take part for (\d+) µs, the\s+next time for (\d+) µs and so on up to (6\.4) ms",
     "LEAVE_JUDGE_NS / 1000", "LEAVE_JUDGE_NS / 500", "LEAVE_JUDGE_NS * 2**LEAVE_TRIES / 1e6"),
    ("design.md", r"\*\*rm\*\*, one\s+of\s+(\d+),", "RM_MAX"),
    ("design.md", r"at least (\d+) readers\s+of this version", "RM_READS"),
    ("design.md", r"two magazines of up to (\d+) objects", "POOL_MAG"),
    ("design.md", r"and (\d+) KiB, or (\d+) magazines", "SLAB_MAX / 1024", "STEP_MAGS"),
    ("design.md", r"It leaves (\d+) KiB of each pool", "TIDY_SPARE / 1024"),
    ("design.md", r"most (\d+) others of its\s+hoard", "CONFIG_EXEC_BATCH - 1"),
    ("design.md", r"is a number of (\d+) bits", "SLOT_WORK_BITS"),
    ("progress.md", r"a step visits (\d+) magazines or slabs", "STEP_SLABS"),
]


def read(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as file:
        return file.read()


def names(*patterns):
    found = (p for pattern in patterns for p in glob.glob(os.path.join(TOP, pattern), recursive=True))
    return sorted(os.path.relpath(p, TOP) for p in found)


def macros(sources):
    """The last value of each macro (the first is that of the model), and the options' defaults."""
    values = {}
    for text in sources.values():
        values.update(re.findall(r"^[ \t]*#define[ \t]+(\w+)[ \t]+([^\n/]+)", text, re.M))
    for name in names("*/Kconfig"):
        values.update(("CONFIG_" + k, v) for k, v in
                      re.findall(r"^config (\w+)\n\tint [^\n]*\n(?:\t[^\n]*\n)*?\tdefault (\d+)", read(name), re.M))
    return values


def number(text, values, depth=0):
    """The value of an expression of C, or of one in a document."""
    text = text.strip().replace("−", "-").replace("^", "**")
    text = re.sub(r"\b(\d+)(?:u?ll|u)\b", r"\1", text)
    text = re.sub(r"\b[A-Za-z_]\w*\b",
                  lambda m: "(%r)" % number(values[m.group()], values, depth + 1), text)
    if depth > 9 or not re.fullmatch(r"[\d\s.e()<>*/+-]*", text):
        raise ValueError(text)
    return eval(text)       # digits and operators alone


def anchor(heading):
    """As the usual renderers of Markdown make it."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def headings(text):
    found = re.findall(r"^#+ (.*)$", text, re.M) + re.findall(r"^(.+)\n(?:===+|---+)$", text, re.M)
    return {anchor(h) for h in found}


def main():
    sources = {n: read(n) for n in names(*(l + "/**/*." + e for l in LAYERS for e in ("c", "h", "cc")))
               if "/abi/0.1/" not in n}
    scripts = {n: read(n) for n in names(*(l + "/**/*." + e for l in ("tools", "tests", "python")
                                           for e in ("py", "sh", "pml", "cu")))}
    words = set(re.findall(r"\b[A-Za-z_]\w*(?=\()", "\n".join(list(sources.values()) + list(scripts.values()))))
    tests = set(re.findall(r"\btest_\w+", "\n".join(list(sources.values()) + list(scripts.values()))))
    tests |= {os.path.splitext(os.path.basename(n))[0] for n in list(sources) + list(scripts)}
    values = macros(sources)
    bad = []

    def defined(function, path):
        text = sources.get(path) or scripts.get(path) or ""
        return re.search(r"^(?:(?![ \t#*/])[^\n;=]*\b%s\(|#define %s\()" % (function, function), text, re.M)

    for doc in names("README.md", "CONTRIBUTING", "tests/README", "python/README.md", "Documentation/*.md"):
        text, folder = read(doc), os.path.dirname(doc)
        say = lambda at, what: bad.append("%s:%d: %s" % (doc, text.count("\n", 0, at) + 1, what))
        for m in re.finditer(r"(?<![\w/.-])" + PATH, text):
            path = m.group()
            if OTHER_FILES.search(path) or re.search(r"[*<>{}]", path):
                continue
            if not any(os.path.exists(os.path.join(TOP, at, path + end)) for at in ("", folder)
                       for end in ("", ".c", ".cc", ".sh", ".py")):
                say(m.start(), "there is no %s" % path)
        for m in re.finditer(r"`([A-Za-z_]\w*)\(\)`", text):
            if m.group(1) not in words and m.group(1) not in OTHERS:
                say(m.start(), "no source has a function %s()" % m.group(1))
        flat = re.sub(r"\n", " ", text)
        for m in re.finditer(r"(%s)(?: \(|, )(%s)\b" % (CALLS, SOURCE), flat):
            for function in re.findall(r"`(\w+)\(\)`", m.group(1)):
                if not defined(function, m.group(2)):
                    say(m.start(), "%s does not define %s()" % (m.group(2), function))
        for m in re.finditer(r"\]\(([^)#\s:]*)(#[^)\s]+)?\)", text):
            path = os.path.normpath(os.path.join(folder, m.group(1))) if m.group(1) else doc
            if not os.path.exists(os.path.join(TOP, path)):
                say(m.start(), "a link to %s, which does not exist" % path)
            elif m.group(2) and path.endswith(".md") and m.group(2)[1:] not in headings(read(path)):
                say(m.start(), "%s has no heading %s" % (path, m.group(2)))
        for m in re.finditer(r"(?<![\w/.])test_[a-z0-9_]*[a-z0-9]\b", text):
            if m.group() != "test_x" and m.group() not in tests and \
               "START_TEST(%s)" % m.group() not in text:
                say(m.start(), "there is no test %s" % m.group())
    walk = read("Documentation/design.md").partition("\n" + WALK + "\n")[2].partition("\nContract\n")[0]
    said = re.findall(r"`((?:core|exec|device|pool)/\w+\.c)`", walk)
    for path in names("core/*.c", "exec/*.c", "device/*.c", "pool/*.c"):
        if said.count(path) != 1:
            bad.append("Documentation/design.md: \"%s\" names %s %d times" % (WALK, path, said.count(path)))
    for doc, pattern, *wanted in NUMBERS:
        text = read(os.path.join("Documentation", doc))
        said = re.search(pattern, text)
        if not said:
            bad.append("Documentation/%s: no longer says %s: NUMBERS of check-docs.py" % (doc, pattern))
            continue
        if isinstance(wanted[0], tuple):
            found = re.search(wanted[0][1], sources[wanted[0][0]])
            wanted = found.groups() if found else ()
        if [number(s, values) for s in said.groups()] != [number(w, values) for w in wanted]:
            bad.append("Documentation/%s:%d: %s: the sources say %s" %
                       (doc, text.count("\n", 0, said.start()) + 1, said.group(),
                        ", ".join("%s = %g" % (w, number(w, values)) for w in wanted) or "nothing"))
    public = set(re.findall(r"^PAWL_API [^;(]*?\b(pawl_\w+)\(", sources["include/pawl/engine.h"] +
                            sources["include/pawl/device.h"], re.M)) - {"pawl_config_init_size"}
    called = set(re.findall(r"\b(pawl_\w+)\(", "".join(read(n) for n in names("examples/*.c"))))
    for name in sorted(public - called - NO_EXAMPLE):
        bad.append("examples/: no example calls %s()" % name)
    for doc, calls in (("errors.md", public - NO_ERRORS), ("progress.md", public)):
        named = set(re.findall(r"\bpawl_\w+", read("Documentation/" + doc)))
        bad += ["Documentation/%s: nothing about %s()" % (doc, c) for c in sorted(calls - named)]
    print("\n".join(bad))
    if bad:
        sys.exit(1)


main()
