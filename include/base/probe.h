/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes for tracers (USDT: bpftrace, perf, SystemTap, gdb); layer 0.
 *
 * A probe is one nop in the code, and a note in the ELF file that says where it is and in which
 * registers or memory its arguments are.  A tracer replaces the nop while it is attached.  So
 * that a probe costs nothing else, an argument is a value that the code has at hand, or a field
 * of an object whose address it has: never a call, and no field of another thread's object.
 *
 * pawl(7) lists the probes; tests/tools/test_probes.sh compares that list with the library.
 */
#ifndef BASE_PROBE_H
#define BASE_PROBE_H

#if defined(CONFIG_USDT) && !defined(PAWL_SIM)
#include <sys/sdt.h>

#define PROBE3(name, a, b, c)		STAP_PROBE3(pawl, name, a, b, c)
#define PROBE4(name, a, b, c, d)	STAP_PROBE4(pawl, name, a, b, c, d)
#else
#define PROBE3(name, a, b, c)		do { } while (0)
#define PROBE4(name, a, b, c, d)	do { } while (0)
#endif

#endif
