#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
#
# hotpath.py LIBRARY.a: which functions of others the path of an op can reach.
#
# From objdump: every call and jump between functions, and every function whose address is
# taken, counts as an edge.  The walk begins at what an op passes through, and ends at the
# functions of STOPS, each of which is an exception that Documentation/limits.md names.
# What it meets outside the library must be in HARMLESS; for a call that a signal handler may
# make, in SAFE.
#
# A control goes first: a planted path to a lock must be found.
import re
import subprocess
import sys
import tempfile
import os

ROOTS = ['pawl_push', 'pawl_complete', 'pawl_graph_push', 'pawl_run_one',
         'pawl_var_version', 'run_work', 'exec_run', 'engine_idle', 'queue_start_or_wake', 'queue_take',
         'exec_push', 'retire', 'thread_take']
STOPS = {
    'thread_enter': "a thread's first call on an engine allocates",
    'lane_add': "a thread's first push to a queue allocates",
    'ring_grow': 'a ring that doubles allocates',
    'queue_start': 'the first op of a queue creates its workers',
    'trace_event': "a thread's first event of a trace allocates",
    'trace_node': 'the same',
    'trace_return': 'the same',
    'record_push': 'a recording, if one is on: a buffer at first, a write() when it is full',
    'record_undo': 'the same',
    'record_begin': 'the same',
    'record_end': 'the same',
    'record_node_begin': 'the same',
    'record_node_end': 'the same',
    'room_wait': 'blocks where there is no room, if the policy says so',
    'wait_naive': 'the naive kind runs the op inside the push',
    'lane_sync': 'the naive kind, or one without memory, waits for the device',
    'ready_write': 'the first ready op, if the host asked for a descriptor: its eventfd',
    'ready_clear': 'the same: the host found nothing to run',
    'lanes_trim': "a trim: the rings' memory goes back once",
    'cq_signal': 'the first completion in an empty queue: its eventfd, or a sleeping thread',
    'publish_look': 'an engine that is published looks for clients, four times a second at most',
    'err': 'the text of an error',
    'err_field': 'the same',
    'error_make': "a failed op's message",
    'launch_new': 'more launches of a graph in flight than ever before',
    'graph_put': 'the last reference of a graph frees it',
}
# What a signal handler may call, and all that it reaches outside the library.
HANDLER = ['pawl_dump']
SAFE = {'write', '__errno_location', 'memcpy', 'memset', '_GLOBAL_OFFSET_TABLE_'}
HARMLESS = {
    'memcpy', 'memset', 'memmove', 'memcmp', 'strlen', 'strncpy', 'snprintf', 'vsnprintf',
    'mprotect', 'mremap', 'mincore', 'sysconf', 'syscall', '__errno_location', 'clock_gettime',
    '__tls_get_addr', '_GLOBAL_OFFSET_TABLE_', '__snprintf_chk', '__vsnprintf_chk', '__memcpy_chk',
    '__popcountdi2', 'pool_commit_hook', 'exec_worker_hook', 'abort', 'fprintf', 'stderr', 'bug_failed',
}

FUNC = re.compile(r'^[0-9a-f]+ <([^>]+)>:')
CALL = re.compile(r'\s(?:call|jmp|j[a-z]+|lea)\b.*<([^>+]+)(?:\+0x[0-9a-f]+)?>')
RELOC = re.compile(r'R_X86_64_(?:PLT32|PC32|GOTPCRELX?|REX_GOTPCRELX|GOTPCREL|64)\s+([^\s+-]+)([+-]0x[0-9a-f]+)?')


def base(name):
    return re.sub(r'\.(cold|part|isra|constprop|lto_priv)(\.\d+)*', '', name).split('@')[0]


def graph(path):
    """Edges by function name; symbols of sections are resolved by their offset."""
    edges, syms = {}, {}
    out = subprocess.run(['objdump', '-dr', '--no-show-raw-insn', path], check=True,
                         capture_output=True, text=True).stdout
    section, obj, func, pending = '', '', None, None
    for line in out.splitlines():
        if ': ' in line and 'file format' in line:
            obj = line.split(':')[0]
        elif line.startswith('Disassembly of section '):
            section = line[len('Disassembly of section '):-1]
        m = FUNC.match(line)
        if m:
            if pending and func:
                edges[func].add(pending)
            pending, func = None, base(m.group(1))
            edges.setdefault(func, set())
            syms.setdefault((obj, section), []).append((int(line.split()[0], 16), func))
            continue
        if func is None:
            continue
        m = RELOC.search(line)
        if 'R_X86_64_' in line:
            pending = None      # what objdump showed was not filled in yet
        if pending and pending != func:
            edges[func].add(pending)
        pending = None
        if m:
            name, off = m.group(1), int(m.group(2) or '0', 16)
            edges[func].add((obj, name, off) if name.startswith('.text') else base(name))
            continue
        m = CALL.search(line)
        pending = base(m.group(1)) if m else None
    for func, to in edges.items():
        for e in [e for e in to if isinstance(e, tuple)]:
            to.discard(e)
            at = [f for a, f in syms.get(e[:2], []) if a <= e[2] + 4]
            if at and at[-1] != func:
                to.add(at[-1])
    return edges


def reach(edges, roots):
    came, queue = {r: None for r in roots if r in edges}, [r for r in roots if r in edges]
    while queue:
        f = queue.pop()
        if f in STOPS:
            continue
        for g in edges.get(f, ()):
            if g not in came:
                came[g] = f
                queue.append(g)
    return came


def judge(edges, roots, functions, harmless):
    came = reach(edges, roots)
    bad = sorted(f for f in came if f in functions and f not in edges and f not in harmless)
    for f in bad:
        path, g = [f], f
        while came[g]:
            g = came[g]
            path.append(g)
        yield ' <- '.join(path)
    yield len([f for f in came if f in edges])


def undefined(path):
    """Not by nm, which shows the symbols before link-time optimization, without malloc."""
    out = subprocess.run(['readelf', '-sW', path], capture_output=True, text=True, check=True).stdout
    return {base(x[7]) for x in (line.split() for line in out.splitlines())
            if len(x) > 7 and x[6] == 'UND'}


def control():
    code = '''#include <pthread.h>
        pthread_mutex_t m; int x;
        __attribute__((noinline)) static void deep(void) { pthread_mutex_lock(&m); x++; }
        __attribute__((noinline)) void middle(void) { deep(); x += 2; }
        void pawl_push(void) { middle(); x += 3; }'''
    with tempfile.TemporaryDirectory() as d:
        c, o = os.path.join(d, 'c.c'), os.path.join(d, 'c.o')
        with open(c, 'w', encoding='ascii') as f:
            f.write(code)
        subprocess.run([os.environ.get('CC', 'cc'), '-O2', '-fPIC', '-fno-plt', '-c', '-o', o, c],
                       check=True)
        return any('pthread_mutex_lock' in str(x) for x in
                   judge(graph(o), ['pawl_push'], undefined(o), HARMLESS))


def main():
    lib = sys.argv[1]
    edges = graph(lib)
    must = [*HANDLER, 'pawl_push', 'pawl_graph_push', 'pawl_complete', 'run_work']
    missing = [f for f in must if f not in edges]
    *bad, n = judge(edges, ROOTS, undefined(lib), HARMLESS)
    *unsafe, _ = judge(edges, HANDLER, undefined(lib), SAFE)
    found = control()
    for line in bad:
        print('  the path of an op reaches', line)
    for line in unsafe:
        print('  a signal handler reaches', line)
    ok = not bad and not unsafe and not missing and found
    print(f'C11 calls: functions={n} exceptions={len([s for s in STOPS if s in edges])} '
          f'forbidden={len(bad)} unsafe={len(unsafe)} control={"convicted" if found else "PASSED"} '
          f'{"PASS" if ok else "FAIL"}')
    return 0 if ok else 1


if __name__ == '__main__':
    sys.exit(main())
