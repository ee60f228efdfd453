// SPDX-License-Identifier: Apache-2.0
/*
 * Two measurements beside each other.  Of each figure the rounds are compared by the U test of
 * Mann and Whitney, which assumes nothing about how they are distributed.  A figure differs if
 * chance alone would make such a difference in less than one of twenty comparisons of all
 * figures, and if the medians differ by the threshold.
 */

#include <stdlib.h>
#include <string.h>

#include <tools/pawl/cmd.h>
#include "suite.h"

#define LEVEL	0.05
#define EXACT	40u			/* rounds of both sides: above, a normal distribution */

struct side {
	const char *names;
	json_t *figures;		/* name: {unit, better, rounds} */
	char host[512];
};

/* --- reading ----------------------------------------------------------------------------- */

static bool side_add(struct side *s, const char *file)
{
	json_error_t err;
	json_t *root = json_load_file(file, 0, &err), *figure, *have;
	const char *tool, *version, *cpu, *kernel;
	int cpus;
	size_t i;

	if (!root) {
		fprintf(stderr, "%s: %s: %s\n", BENCH_SELF, file, err.text);
		return false;
	}
	if (json_unpack(root, "{s:s, s:s, s:{s:s, s:s, s:i}}", "tool", &tool, "version", &version,
			"host", "cpu", &cpu, "kernel", &kernel, "cpus", &cpus) ||
	    strcmp(tool, BENCH_SELF)) {
		fprintf(stderr, "%s: %s: not a measurement of %s\n", BENCH_SELF, file, BENCH_SELF);
		json_decref(root);
		return false;
	}
	snprintf(s->host, sizeof(s->host), "%.200s, %d CPUs, Linux %.100s", cpu, cpus, kernel);
	json_array_foreach(json_object_get(root, "figures"), i, figure) {
		const char *name = json_string_value(json_object_get(figure, "name"));
		json_t *rounds = json_object_get(figure, "rounds");

		if (!name || !json_is_array(rounds))
			continue;
		have = json_object_get(s->figures, name);
		if (have)
			json_array_extend(json_object_get(have, "rounds"), rounds);
		else
			json_object_set_new(s->figures, name, json_deep_copy(figure));
	}
	json_decref(root);
	return true;
}

static bool side_read(struct side *s, const char *names)
{
	char *all = strdup(names), *save = NULL, *file;
	bool ok = all != NULL;

	s->names = names;
	s->figures = json_object();
	for (file = all ? strtok_r(all, ",", &save) : NULL; ok && file;
	     file = strtok_r(NULL, ",", &save))
		ok = side_add(s, file);
	free(all);
	if (ok && !json_object_size(s->figures)) {
		fprintf(stderr, "%s: %s: no figures\n", BENCH_SELF, names);
		ok = false;
	}
	return ok;
}

static unsigned int rounds_of(json_t *figure, double *v, unsigned int room)
{
	unsigned int n = 0;
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(figure, "rounds"), i, one)
		if (n < room && json_is_number(one))
			v[n++] = json_number_value(one);
	return n;
}

/* --- the test ---------------------------------------------------------------------------- */

/* U of a: how often a value of a exceeds one of b; a tie is half of a time. */
static double u_of(const double *a, unsigned int n, const double *b, unsigned int m)
{
	unsigned int i, k;
	double u = 0;

	for (i = 0; i < n; i++)
		for (k = 0; k < m; k++)
			u += a[i] > b[k] ? 1 : a[i] == b[k] ? 0.5 : 0;
	return u;
}

/*
 * The probability that U is at most this, if both sides are the same.  ways[i][u]: the number
 * of orders of i values of one side, and those of the other side so far, with that U.
 */
static double u_exact(unsigned int n, unsigned int m, unsigned int most)
{
	unsigned int width = n * m + 1, i, k, u;
	double *ways = bench_alloc((size_t)(n + 1) * width, sizeof(*ways)), sum = 0, all = 0;

	/* the greatest value is of the first side, above all m others, or of the second */
	for (i = 0; i <= n; i++)
		ways[(size_t)i * width] = 1;
	for (k = 1; k <= m; k++)
		for (i = 1; i <= n; i++)
			for (u = width; u-- > 0;)
				/* row i holds k - 1 of the second side, row i - 1 already k */
				ways[(size_t)i * width + u] +=
					u >= k ? ways[(size_t)(i - 1) * width + u - k] : 0;
	for (u = 0; u < width; u++) {
		all += ways[(size_t)n * width + u];
		sum += u <= most ? ways[(size_t)n * width + u] : 0;
	}
	free(ways);
	return sum / all;
}

/* The probability of a difference as large as this, or larger, in either direction. */
static double u_test(const double *a, unsigned int n, const double *b, unsigned int m)
{
	double u = fmin(u_of(a, n, b, m), u_of(b, m, a, n)), mean, deviation;

	if (n + m <= EXACT)
		return fmin(1, 2 * u_exact(n, m, (unsigned int)ceil(u)));
	mean = n * (double)m / 2;
	deviation = sqrt(n * (double)m * (n + m + 1) / 12);
	return fmin(1, erfc((mean - u - 0.5) / deviation / M_SQRT2));
}

/* --- the table ----------------------------------------------------------------------------- */

struct verdict {
	unsigned int figures, worse, better, mute, alone;
};

static enum unit unit_of(json_t *figure)
{
	const char *unit = json_string_value(json_object_get(figure, "unit"));

	return unit && !strcmp(unit, "ns") ? UNIT_NS : unit && !strcmp(unit, "share") ?
	       UNIT_SHARE : UNIT_RATE;
}

static void compare_figure(const struct options *o, const char *name, json_t *before,
			   json_t *after, unsigned int figures, struct verdict *v)
{
	double *a = bench_alloc(MAX_ROUNDS, sizeof(*a)), *b = bench_alloc(MAX_ROUNDS, sizeof(*b));
	unsigned int n = rounds_of(before, a, MAX_ROUNDS), m = rounds_of(after, b, MAX_ROUNDS);
	double x = median_of(a, n), y = median_of(b, m), change = (y / x - 1) * 100, p;
	enum unit unit = unit_of(before);
	const char *say = "";
	char s[32], t[32];

	if (!n || !m) {
		free(a);
		free(b);
		v->mute++;
		return;
	}
	p = fmin(1, u_test(a, n, b, m) * figures);
	if (n + m <= EXACT && 2 * u_exact(n, m, 0) * figures >= LEVEL) {
		say = "too few rounds";
		v->mute++;
	} else if (p < LEVEL && fabs(change) >= o->threshold) {
		bool worse = (change > 0) == (unit == UNIT_NS);

		say = worse ? "worse" : "better";
		v->worse += worse;
		v->better += !worse;
	}
	printf("%-30s %10s %10s %+8.1f %% %8.2g  %s\n", name,
	       bench_value(unit, x, s, sizeof(s)), bench_value(unit, y, t, sizeof(t)), change, p,
	       say);
	free(a);
	free(b);
}

int bench_compare(const struct options *o, const char *before, const char *after)
{
	struct side a = { 0 }, b = { 0 };
	struct verdict v = { 0 };
	int rc = STATUS_FAILED;
	const char *name;
	json_t *figure;

	if (!side_read(&a, before) || !side_read(&b, after))
		goto out;
	json_object_foreach(a.figures, name, figure)
		v.figures += json_object_get(b.figures, name) != NULL;
	v.alone = (unsigned int)(json_object_size(a.figures) + json_object_size(b.figures)) -
		  2 * v.figures;
	if (!v.figures) {
		fprintf(stderr, "%s: the measurements have no figure in common\n", BENCH_SELF);
		goto out;
	}
	printf("A        %s: %s\nB        %s: %s\n", a.names, a.host, b.names, b.host);
	if (strcmp(a.host, b.host))
		printf("! The hosts differ.\n");
	printf("\n%-30s %10s %10s %10s %8s\n", "medians of the rounds", "A", "B", "B to A", "p");
	json_object_foreach(a.figures, name, figure)
		if (json_object_get(b.figures, name))
			compare_figure(o, name, figure, json_object_get(b.figures, name), v.figures,
				       &v);
	printf("\n%u figures: %u worse, %u better", v.figures, v.worse, v.better);
	if (v.alone)
		printf("; %u are in one of both only", v.alone);
	printf("\n");
	if (v.mute)
		printf("! %u figures have too few rounds for a verdict: measure more rounds.\n",
		       v.mute);
	rc = v.worse || v.mute ? STATUS_FAILED : STATUS_OK;
out:
	json_decref(a.figures);
	json_decref(b.figures);
	return rc;
}
