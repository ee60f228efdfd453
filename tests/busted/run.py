#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The matrix of planted bugs: tests that must fail, each with one bug of
include/base/busted.h turned on.

	run.py [-v] [-a] [-j JOBS] [-m MODEL] BUILD [NAME]...

bugs.list names for each bug the tests, of different classes, that find it.  BUILD is a
build folder with busted.config, MODEL one with the model's programs (.).  A bug is caught
by a class if a test of that class ends with an error of its own: a wrong result, a crash,
or a wait that the test itself bounds (PAWL_TEST_PATIENCE, and the library check's time
limit).  A test that this script must stop has not caught anything.  Much is a matter of
chance: a miss has two more tries.  Each test also runs without any bug, and must pass then,
in three tries as well.

	-v	one line per run
	-a	for each bug all tests of the list that are marked with *, too
	-p	print the programs that BUILD must have
	-j	so many at a time (all CPUs)

Fails if a bug is not in the list or not caught, if fewer than 65 % are caught by two
classes, or if a test fails without a bug.  Not every bug can have two: a missing barrier shows
on weak memory alone, and a rule of one function only where that function is tested.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PATIENCE = 5		# seconds that tests wait for what should have come long ago
TRIES = 3
LIMIT = 60		# seconds after which a test is stopped, and has caught nothing
# statuses of a test that could not run: not a catch
NOT_RUN = (2, 77, 126, 127)

Run = collections.namedtuple('Run', 'bug cls test')


def planted():
    """The names of all bugs, as the sources have them."""
    with open(os.path.join(ROOT, 'include/base/busted.h')) as f:
        return re.findall(r'^\tX\((\w+), "', f.read(), re.M)


def read_list(path):
    """bugs.list: {bug: [(class, test)]}, and those that are for all."""
    bugs, for_all = collections.OrderedDict(), []
    with open(path) as f:
        for line in f:
            if line.startswith('#') or not line.strip():
                continue
            name, *tests = line.rstrip('\n').split('\t')
            tests = [tuple(t.split(' ', 1)) for t in tests if t]
            if name == '*':
                for_all += tests
            else:
                bugs[name] = tests
    return bugs, for_all


def program(test):
    """({variable: value}, program or '' for the model's, its name, the other words)"""
    env, words = {}, shlex.split(test)
    while '=' in words[0]:
        name, value = words.pop(0).split('=', 1)
        env[name] = value
    name, _, only = words[0].partition(':')
    if only:
        env['PAWL_TEST'] = only
    return env, '' if name.startswith('model/') else name, name, words[1:]


def command(opt, run):
    """Where to run it, the words, and what to add to the environment."""
    own, prog, name, rest = program(run.test)
    env = {'PAWL_TEST_PATIENCE': str(PATIENCE), 'CK_TIMEOUT_MULTIPLIER': '0.15', **own}
    if not prog:
        words = ['./tests/model/model_' + name[6:], '-s', rest[0]] + rest[1:]
        return opt.model, words + ['-b', run.bug], env
    if run.bug:
        env['PAWL_BUSTED'] = run.bug
    return opt.build, ['./tests/' + prog] + rest, env


def once(opt, run):
    """(status or None if it had to be stopped, what it said)"""
    where, words, env = command(opt, run)
    # A file, not a pipe: a test that failed may leave children behind that have it open.
    with tempfile.TemporaryFile() as out:
        p = subprocess.Popen(words, cwd=where, env=dict(os.environ, **env), stdout=out,
                             stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
                             start_new_session=True)
        try:
            status = p.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()
        out.seek(0)
        return status, out.read().decode(errors='replace')


def why(out):
    """The line of the output that says most."""
    lines = [l.strip() for l in out.splitlines() if l.strip()]
    for pattern in (r':[FE]:', 'not true|FAILED|not so', 'stuck|leaked|never ran'):
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[-1] if lines else ''


def execute(opt, run):
    start = time.monotonic()
    for _ in range(TRIES):
        status, out = once(opt, run)
        if bool(run.bug) == bool(status):
            break
    seconds = time.monotonic() - start
    if run.bug:
        good = status is not None and status != 0 and status not in NOT_RUN
        word = 'caught' if good else 'MISSED' if status == 0 else 'NO END' if status is None else 'NOT RUN'
    else:
        good = status == 0
        word = 'passes' if good else 'FAILS WITHOUT A BUG'
    if opt.verbose or not good:
        print('%-22s %-4s %-7s %5.1f s  %s%s' % (run.bug or '-', run.cls, word, seconds, run.test,
              ': ' + why(out)[-110:] if run.bug and good or not good else ''), flush=True)
    if not good and not run.bug:
        print(out[-3000:])
    return run, good


def main():
    p = argparse.ArgumentParser()
    p.add_argument('-v', dest='verbose', action='store_true')
    p.add_argument('-a', dest='all', action='store_true')
    p.add_argument('-j', dest='jobs', type=int, default=os.cpu_count())
    p.add_argument('-m', dest='model', default='.')
    p.add_argument('-p', dest='programs', action='store_true')
    p.add_argument('build', nargs='?')
    p.add_argument('names', nargs='*')
    opt = p.parse_args()

    start = time.monotonic()
    bugs, for_all = read_list(os.path.join(HERE, 'bugs.list'))
    if opt.programs:
        tests = sum(bugs.values(), for_all)
        print(' '.join(sorted({p for _, t in tests if (p := program(t)[1])})))
        return 0
    if not opt.build:
        p.error('the build folder is missing')
    names = planted()
    for name in set(names) ^ set(bugs):
        print('%s: only in %s' % (name, 'busted.h' if name in names else 'bugs.list'))
    bad = set(names) != set(bugs)
    if opt.names:
        bugs = {n: bugs[n] for n in opt.names}
    runs = []
    for bug, tests in bugs.items():
        runs += [Run(bug, c, t) for c, t in (tests + for_all if opt.all else tests)]
    # each test once, even if bugs of several classes name it
    controls = {r.test: Run('', r.cls, r.test) for r in runs if not r.test.startswith('model/')}
    controls = sorted(controls.values())
    # Those that wait for their time limits first.
    runs.sort(key=lambda r: '~' not in r.cls)
    runs = [r._replace(cls=r.cls.rstrip('~')) for r in runs]
    controls = [r._replace(cls=r.cls.rstrip('~')) for r in controls]
    caught = collections.defaultdict(set)
    with concurrent.futures.ThreadPoolExecutor(opt.jobs) as pool:
        for run, good in pool.map(lambda r: execute(opt, r), runs + controls):
            if run.bug and good:
                caught[run.bug].add(run.cls)
            bad |= not run.bug and not good
    for bug in bugs:
        if opt.verbose and bug in caught:
            print('%-22s %s' % (bug, ' '.join(sorted(caught[bug]))))
    two = sum(len(caught[b]) > 1 for b in bugs)
    one = sum(len(caught[b]) > 0 for b in bugs)
    bad |= one != len(bugs) or (not opt.names and two < 0.65 * len(bugs))
    print('C17 busted=%d caught=%d by_two=%d classes=%d runs=%d controls=%d %.0fs %s' % (
        len(bugs), one, two, len(set().union(*caught.values())), len(runs), len(controls),
        time.monotonic() - start, 'FAIL' if bad else 'PASS'))
    return bad


if __name__ == '__main__':
    sys.exit(main())
