/* SPDX-License-Identifier: Apache-2.0 */
/* lambda.cc: bodies in C++ beside the same in C (lambda_c.c). */
#ifndef LAMBDA_H
#define LAMBDA_H

#include <stdint.h>
#include <pawl/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LAMBDA_VARS	64u
#define LAMBDA_KINDS	3u

/* What the bodies share: push n ops, each of which writes the next var. */
struct lambda {
	struct pawl_engine *e;
	pawl_var_t v[LAMBDA_VARS];
	uint64_t cell[LAMBDA_VARS][8];
	struct lambda_words *words;	/* for n bodies */
	uint32_t n;
	int keep;			/* in C: do not set the whole struct pawl_op each time */
};

/* What a body of three words has. */
struct lambda_words {
	uint64_t *to;
	const uint64_t *a, *b;
};

typedef void (*lambda_fn)(struct lambda *l);
/* A pointer; three words; three words that the body frees. */
extern const lambda_fn lambda_c[LAMBDA_KINDS];

void lambda_measure(const char *engine, int threads);

#ifdef __cplusplus
}
#endif

#endif
