#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Check that both ends of every memory-ordering edge exist.

A comment at an ordered access names it and its partner: CORE-A1 <-> CORE-R2.  Checked:
  - each label is on at least two lines of the sources (one line if it is its own partner,
    the same access by another thread), and comes first on one of them: it has a comment
    of its own, and is not only mentioned by its partner;
  - a folder's labels begin with its name; other folders may refer to them;
  - Documentation/memory-model.md, if it exists, has the same labels;
  - each access with an order, in a function or a macro, belongs to a comment that names an
    edge, or that begins with a label: of a chain that the access only continues, or of an
    order that needs no partner;
  - the accesses at both ends have the orders that the edge needs.

The last of these reads the order in the name of the access (load_acquire(), smp_mb()) that
stands in the line of the comment, or first behind it.  Of A <-> B, which memory-model.md reads
as "B reads what A wrote", A has to release and B to acquire; an edge that it calls
"(store-load)" has a full barrier at both ends, or seq_cst accesses.  "A <-> B by C" says that
the order is that of the access with label C.  A relaxed load of the same object in the same
statement, in front of the access, is passed over.  If the access is in another function, as
in ck_stack_push_upmc(), that function is known to CALLS or defined in the sources.  A comment in
front of a function stands for the accesses in it, of which one has to have the order.  Each end
of an edge in memory-model.md has such an access.  To a comment belong all accesses of its line, or
else of the statement.
"""
import glob
import os
import re
import sys

LAYERS = ("pool", "device", "exec", "core", "compat")
LABEL = re.compile(r"\b(?:%s)-[A-Z]{1,2}\d+\b" % "|".join(l.upper() for l in LAYERS))
LIST = r"{0}(?:\s*\([^()]*\))?(?:\s*(?:,|and)\s*{0}(?:\s*\([^()]*\))?)*".format(LABEL.pattern)
FIRST = re.compile(r"(?:/\*|^\s*\*|//)\s*(%s)" % LABEL.pattern, re.M)
END = re.compile(r"[;{}]")                            # of a statement
# a label in front of another arrow begins the next edge
LAST = LIST.replace(LABEL.pattern, LABEL.pattern + r"(?!\s*(?:\([^()]*\))?\s*(?:<->|↔))")
EDGE = re.compile(r"(%s)\s*(?:<->|↔)\s*(%s)(?:,? by (%s))?" % (LIST, LAST, LABEL.pattern))

# What an access does with the memory around it.
RELEASES, ACQUIRES, FULL, LOADS, STORES = 1, 2, 4, 8, 16     # the last two: does nothing else
ORDERS = {"relaxed": 0, "acquire": ACQUIRES, "release": RELEASES, "acq_rel": RELEASES | ACQUIRES,
          "seq_cst": RELEASES | ACQUIRES | FULL}
ACCESS = re.compile(r"\b(load|store|xchg|fetch_[a-z]+|(?:pair_)?cas)_(relaxed|acquire|release|acq_rel"
                    r"|seq_cst)(?:_(?:relaxed|acquire))?\(|\bsmp_mb(?:_after_rmw)?\(")
# functions of libraries
CALLS = {
    "ck_stack_push_upmc": RELEASES, "ck_stack_batch_pop_upmc": ACQUIRES,
    "tsan_release": RELEASES, "tsan_acquire": ACQUIRES,
}
CALL = re.compile(r"\b(\w+)\(")
OBJECT = re.compile(r"([^,)]*?)(?:[.>]\w+)?[,)]")      # of an access, without its last member
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
FUNCTION = re.compile(r"^(?![ \t#}/*])[^\n;=]*?\b(\w+)\([^;{}]*\)\n\{\n(.*?)^\}", re.M | re.S)
DEFINE = re.compile(r"^#define (\w+)\([^)]*\)((?:[^\n]*\\\n)*[^\n]*)", re.M)
NAMES = {RELEASES: "release", ACQUIRES: "acquire", RELEASES | ACQUIRES: "release and acquire",
         FULL: "a full barrier"}
REACH = 9       # lines from a comment to its access


def does(match):
    """What one access does."""
    if not match.group(2):
        return RELEASES | ACQUIRES | FULL
    bits = ORDERS[match.group(2)]
    if match.group(1) == "load":
        return bits & ~RELEASES | LOADS
    return bits & ~ACQUIRES | STORES if match.group(1) == "store" else bits


class Sources:
    """The code of all files, and what the functions in it do."""

    def __init__(self, texts):
        self.texts = texts
        self.code = {n: COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), t)
                     for n, t in texts.items()}
        self.bodies = {}
        for text in self.code.values():
            for name, body in FUNCTION.findall(text) + DEFINE.findall(text):
                self.bodies.setdefault(name, []).append(body)

    def of_call(self, name, depth=0):
        """All that a function does, or None if it makes no access."""
        if name in CALLS:
            return CALLS[name]
        found = None
        for body in self.bodies.get(name, ()) if depth < 3 else ():
            for m in ACCESS.finditer(body):
                found = (found or 0) | does(m)
            for call in CALL.findall(body):
                more = self.of_call(call, depth + 1)
                found = found if more is None else (found or 0) | more
        return found

    def first(self, code):
        """What the first access in a piece of code does."""
        m = ACCESS.search(code)
        while m and m.group().startswith("load_relaxed"):
            more = ACCESS.search(code, m.end())
            if not more or ";" in code[m.end():more.start()] or \
               OBJECT.match(code, m.end()).group(1) != OBJECT.match(code, more.end()).group(1):
                break
            m = more
        if m:
            return does(m)
        return next((b for b in map(self.of_call, CALL.findall(code)) if b is not None), None)

    def after(self, name, at):
        """Where the statement at this place ends."""
        stop = END.search(self.code[name], at)
        return stop.end() if stop else at

    def span(self, name, start, end):
        """The code to which a comment belongs: its beginning and end, and if it is a function."""
        code = self.code[name]
        line = code.rfind("\n", 0, start) + 1
        text = code[end:].lstrip("\n")
        function = FUNCTION.match(text)
        if code[line:start].strip():
            # behind code: its line, or the statement around it
            if self.first(code[line:start]) is not None:
                return line, start, False
            begin = max(code.rfind(c, 0, line - 1) for c in ";{}") + 1
            ended = code[line:start].rstrip().endswith(";")
            return begin, start if ended else self.after(name, end), False
        if function:
            begin = len(code) - len(text)
            return begin + function.start(2), begin + function.end(2), True
        near = re.split(r"^\}", code[end:], maxsplit=1, flags=re.M)[0]
        near = "\n".join(near.split("\n")[:REACH])
        access = ACCESS.search(near)
        return end, self.after(name, end + access.end()) if access else end + len(near), False

    def site(self, name, start, end):
        """What the accesses do to which the comment belongs: a list."""
        begin, stop, function = self.span(name, start, end)
        code = self.code[name][begin:stop]
        if function:
            calls = map(self.of_call, CALL.findall(code))
            return [does(m) for m in ACCESS.finditer(code)] + [b for b in calls if b is not None]
        found = self.first(code)
        return [] if found is None else [found]

    def unlabelled(self, name, spans):
        """The accesses with an order that are in none of the spans."""
        for m in ACCESS.finditer(self.code[name]):
            if m.group(2) != "relaxed" and not any(b <= m.start() < e for b, e, _ in spans):
                line = self.code[name].count("\n", 0, m.start()) + 1
                yield "%s:%d: no comment names the edge of %s)" % (name, line, m.group())


def needs(doc):
    """{(A, B): what A needs}, from the edges in bold in the document."""
    kinds = {}
    for bold in re.finditer(r"\*\*[^*]*↔[^*]*\*\*[^\n]*", doc):
        for edge in EDGE.finditer(bold.group()):
            for a in LABEL.findall(edge.group(1)):
                for b in LABEL.findall(edge.group(2)):
                    if "(store-load)" in bold.group():
                        kinds[a, b] = kinds[b, a] = FULL
                    elif a == b:
                        kinds[a, a] = RELEASES | ACQUIRES
                    else:
                        kinds.setdefault((a, b), RELEASES)
                        kinds.setdefault((b, a), ACQUIRES)
    return kinds


def suffices(site, need):
    """Does an access, or one of a function, do what an end of an edge needs?"""
    def all_of(bits):
        if need == RELEASES | ACQUIRES:     # its own partner: what a load or a store can do
            return bits & need and bits & (need | LOADS | STORES) not in (RELEASES, ACQUIRES)
        return bits & need == need
    return any(map(all_of, site))


def check_orders(texts, doc):
    """Faults of the accesses at the ends of the edges, and the number of accesses."""
    sources = Sources(texts)
    kinds = needs(doc)
    bad, ends, count = [], set(), 0
    for name, text in texts.items():
        begin = re.search(r"^(?:#include|#ifndef|static|struct|extern)", sources.code[name], re.M)
        spans = []
        for comment in COMMENT.finditer(text):
            if begin and comment.start() < begin.start():
                continue    # the list at the beginning of a file
            flat = re.sub(r"\n\s*\*(?!/)", lambda m: " " * len(m.group()), comment.group())
            if EDGE.search(flat) or FIRST.match(flat):
                spans.append(sources.span(name, comment.start(), comment.end()))
            for edge in EDGE.finditer(flat):
                at = "%s:%d" % (name, text.count("\n", 0, comment.start() + edge.start()) + 1)
                by = edge.group(3)
                if by:
                    site = [k for (a, _), k in kinds.items() if a == by]
                    site = [RELEASES | ACQUIRES | FULL if s == FULL else s for s in site]
                else:
                    site = sources.site(name, comment.start(), comment.end())
                if not site:
                    bad.append("%s: no access at %s" % (at, edge.group()))
                    continue
                count += 1
                for a in LABEL.findall(edge.group(1)):
                    for b in LABEL.findall(edge.group(2)):
                        need = kinds.get((a, b))
                        ends.add((a, b))
                        if need is None:
                            bad.append("%s: memory-model.md has no edge %s ↔ %s" % (at, a, b))
                        elif not suffices(site, need):
                            bad.append("%s: %s <-> %s needs %s: not the order of %s" % (
                                at, a, b, NAMES[need], by or "this access"))
        if name.split(os.sep)[0] in LAYERS:
            bad += sources.unlabelled(name, spans)
    bad += ["memory-model.md: no access is labelled %s <-> %s" % pair
            for pair in sorted(kinds.keys() - ends)]
    return bad, count


def main():
    top = sys.argv[1] if len(sys.argv) > 1 else "."
    texts = {}      # file -> text
    places = {}     # label -> set of file:line
    edges = set()   # (label, partner)
    first = set()   # labels that begin a comment, or a line of one
    bad = []
    for path in sorted(p for layer in LAYERS + ("include/base",)
                       for p in glob.glob(os.path.join(top, layer, "*.[ch]"))):
        name = os.path.relpath(path, top)
        with open(path, encoding="utf-8") as file:
            text = texts[name] = file.read()
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
            text = file.read()
        written = set(LABEL.findall(text))
        bad += [f"{min(places[l])}: {l} is not in memory-model.md"
                for l in sorted(places.keys() - written)]
        bad += [f"memory-model.md: {l} is not in the sources"
                for l in sorted(written - places.keys())]
        faults, accesses = check_orders(texts, text)
        bad += faults
    for line in bad:
        print(line, file=sys.stderr)
    if not bad:
        print(f"{len(places)} labels, {len(edges)} edges, {accesses} ordered accesses")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
