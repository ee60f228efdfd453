/* SPDX-License-Identifier: Apache-2.0 */
/* Fast printing of many lines: a buffer before a FILE, and the few conversions that they need. */
#ifndef PAWL_OUT_H
#define PAWL_OUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct out {
	FILE *f;
	size_t n;
	char buf[1 << 16];
};

/* Like fprintf(), but only with %s, %c, %u, %d, %lu and %zu, without flags, widths and precisions. */
void out_print(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* v / 10^digits, with so many digits behind the point, at most 9. */
void out_fixed(struct out *o, uint64_t v, unsigned int digits);
/* A string of JSON; bytes that are no UTF-8 become U+FFFD. */
void out_json(struct out *o, const char *s);
void out_flush(struct out *o);

#endif
