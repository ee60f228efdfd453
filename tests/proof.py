#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
The table of figures in Documentation/proof.md, from the lines that the classes of tests print (C03 model_core: ... PASS).

	proof.py FIGURES	put the figures of a run of make check-all (build/proof.txt) in
	proof.py -c		is the table in the tree as this script writes it?
"""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
DOC = 'Documentation/proof.md'
BEGIN, END = '<!-- proof:begin -->\n', '<!-- proof:end -->\n'
LINE = re.compile(r'(C\d\d) (.*) PASS$')


def table(lines):
    """Lines 'C03 ... PASS' as a table; one row each, in the order of classes."""
    rows = sorted({LINE.match(l).groups() for l in lines if LINE.match(l)})
    return '| class | figures of the last run that was copied here |\n| --- | --- |\n' + ''.join(
        '| %s | `%s` |\n' % row for row in rows)


def parts():
    """Before the table, the table, behind it."""
    with open(os.path.join(ROOT, DOC)) as f:
        head, rest = f.read().split(BEGIN)
    return (head, *rest.split(END))


def main():
    head, old, tail = parts()
    if sys.argv[1:] == ['-c']:
        rows = re.findall(r'^\| (C\d\d) \| `(.*)` \|$', old, re.M)
        if not rows or table('%s %s PASS' % r for r in rows) != old:
            print("%s: the table of figures is not make proof-table's" % DOC)
            return 1
        return 0
    with open(sys.argv[1]) as f:
        new = table(l.strip() for l in f)
    with open(os.path.join(ROOT, DOC), 'w') as f:
        f.write(head + BEGIN + new + END + tail)
    return 0


if __name__ == '__main__':
    sys.exit(main())
