/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share.  A target is one function over bytes, the entry that libFuzzer
 * calls; replay.c is a main() that calls it without libFuzzer.
 *
 * A target that finds a fault calls fuzz_broken(), which prints the command that runs the same
 * bytes again.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The target defines its name, and prints its counts for the line of figures. */
extern const char fuzz_target[];
void fuzz_figures(char *buf, size_t len);

/* The current input and its file (replay.c; libFuzzer knows no file). */
extern const uint8_t *fuzz_data;
extern size_t fuzz_size;
extern const char *fuzz_file __attribute__((weak));
extern int fuzz_verbose __attribute__((weak));

#define fuzz_say(...)								\
	do {									\
		if (&fuzz_verbose && fuzz_verbose)				\
			printf(__VA_ARGS__);					\
	} while (0)

/* Print the replay command to standard error; first save the input if it is not in a file. */
static inline void fuzz_say_replay(void)
{
	char name[64];
	const char *file = &fuzz_file ? fuzz_file : NULL;
	uint64_t h = 14695981039346656037ull;
	size_t i;
	FILE *f;

	if (!file) {
		for (i = 0; i < fuzz_size; i++)
			h = (h ^ fuzz_data[i]) * 1099511628211ull;
		snprintf(name, sizeof(name), "failed-%s-%016llx", fuzz_target,
			 (unsigned long long)h);
		f = fopen(name, "wb");
		if (f) {
			fwrite(fuzz_data, 1, fuzz_size, f);
			fclose(f);
		}
		file = name;
	}
	fprintf(stderr, "replay: tests/fuzz/fuzz_%s %s\n", fuzz_target, file);
}

static inline void fuzz_broken(const char *fmt, ...)
	__attribute__((format(printf, 1, 2), noreturn, unused));

static inline void fuzz_broken(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "FAILED: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	fuzz_say_replay();
	abort();
}

/* For targets that have an engine. */
#define GOOD(cond)								\
	do {									\
		if (!(cond))							\
			fuzz_broken("%s:%d: %s (last error: %s)", __FILE__, __LINE__, #cond, \
				    pawl_error_text());				\
	} while (0)

#endif
