// SPDX-License-Identifier: Apache-2.0
/* eng_serial.c - no engine: the push runs the op.  What the work itself costs. */
#include "bench.h"

static void serial_create(int threads)
{
	(void)threads;
}

static void serial_vars(uint32_t n)
{
	(void)n;
}

static void serial_nothing(void)
{
}

const struct bench_engine bench_serial = {
	.name = "serial",
	.threads = 1,
	.create = serial_create,
	.vars = serial_vars,
	.push = bench_body,
	.wait = serial_nothing,
	.destroy = serial_nothing,
};
