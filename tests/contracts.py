#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Check that tests hold each public function to the errors that its manual page names.

For each errno at the beginning of a line of ERRORS in Documentation/man/*.3.scd, a test
  - provokes exactly that errno from that function: REFUSED(e, call, -EX), FAILS(call, -EX), or a
    comparison of the call with it;
  - makes the same call with success later, in the same test, so nothing is broken, and the
    call can be repeated.  Functions of the test, such as bodies, belong to it.  REFUSED() also
    compares the engine's state before and after.

The errors of every call (-EUSERS, -ENOMEM, -EOWNERDEAD) have tests for some calls only, since one
function returns them for all.  With -l the tests are listed.
"""
import glob
import os
import re
import sys

# errors after which the call cannot succeed in the same process
FOR_GOOD = {"ENOSYS"}       # built without
EVERY = {"EUSERS", "ENOMEM", "EOWNERDEAD"}
BLOCK = re.compile(r"^(?:START_TEST\((\w+)\)|[a-z][^\n;=]*?\b(\w+)\([^;{}]*\))\n\{\n(.*?)^\}", re.M | re.S)
SUCCESS = (r"(?:\bOK\(|\bMUST\(!){0}\(",
           r"\bck_assert_int_(?:eq|ge|gt)\({0}\([^;]*\), (?!-)[\w ]+\);",
           r"\bOK\((?:[a-z]\w*) \? 0 : {0}\(")


def promises(page):
    """The errors that a manual page names, without those of every call."""
    with open(page, encoding="utf-8") as file:
        section = re.search(r"^# ERRORS\n(.*?)^# ", file.read(), re.M | re.S)
    lines = section.group(1).split("\n") if section else []
    return [e for line in lines if line.startswith("*-E") for e in re.findall(r"-(E\w+)", line)]


def end_of_call(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if not depth:
            return i
    return at


def provocations(body):
    """(function, errno, position) of the calls in a body that are compared with an errno."""
    for call in re.finditer(r"\b(pawl_\w+)\(", body):
        end = end_of_call(body, call.end() - 1)
        code = re.match(r"\)?\s*(?:,|==|!=)\s*-(E\w+)", body[end + 1:end + 80])
        if code:
            yield call.group(1), code.group(1), end


def main():
    top = next((a for a in sys.argv[1:] if a != "-l"), ".")
    found = {}      # (function, errno) -> [(where, repeated)]
    for path in sorted(glob.glob(os.path.join(top, "tests/unit/*.c")) +
                       glob.glob(os.path.join(top, "tests/device/*.c"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        blocks = [(m.group(1), m.group(2), m.group(3), m.start()) for m in BLOCK.finditer(text)]
        for test, helper, body, start in blocks:
            for function, code, end in provocations(body):
                later = [body[end:]]
                users = [b for t, _, b, _ in blocks
                         if helper and t and re.search(r"\b%s\b" % helper, b)]
                later += users + [b for _, h, b, _ in blocks if h and h != helper and any(
                    re.search(r"\b%s\b" % h, u) for u in users)]
                good = any(re.search(s.format(function), part) for s in SUCCESS for part in later)
                where = "%s:%d" % (os.path.relpath(path, top), text.count("\n", 0, start) + 1)
                found.setdefault((function, code), []).append((where, good or code in FOR_GOOD))
    bad, count = [], 0
    pages = sorted(glob.glob(os.path.join(top, "Documentation/man/pawl_*.3.scd")))
    for page in pages:
        function = os.path.basename(page)[:-len(".3.scd")]
        for code in promises(page):
            count += 1
            tests = found.get((function, code), [])
            if "-l" in sys.argv:
                print(function, code, *sorted({w for w, good in tests if good}))
            if not tests:
                bad.append("%s: no test provokes -%s" % (function, code))
            elif not any(good for _, good in tests):
                bad.append("%s: after -%s no test makes the call with success: %s" %
                           (function, code, tests[0][0]))
    for code in sorted(EVERY):
        if not any(c == code for _, c in found):
            bad.append("no test provokes -%s, which every call can return" % code)
    print("\n".join(bad) or "%d pages, %d errors, each provoked by a test" % (len(pages), count),
          file=sys.stderr if bad else sys.stdout)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
