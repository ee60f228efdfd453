// SPDX-License-Identifier: Apache-2.0
/* The figures as text and as JSON. */

#include <stdlib.h>
#include <string.h>

#include "suite.h"

#define SPREAD	0.1		/* of the median */
#define LAG	0.2		/* of the time, both at p99 */

/* In units of 1/100000. */
static const struct {
	unsigned int part;
	const char *name;
} levels[] = {
	{ 50000, "p50" }, { 90000, "p90" }, { 99000, "p99" }, { 99900, "p99.9" },
	{ 99990, "p99.99" }, { 99999, "p99.999" },
};

#define NLEVELS (sizeof(levels) / sizeof(levels[0]))

/* The value of a level, and how many samples are beyond it.  False if too few are. */
static bool level_value(const struct hist *h, size_t level, uint64_t *value, uint64_t *beyond)
{
	uint64_t rank = (h->count * levels[level].part + 99999) / 100000, seen;

	*beyond = h->count - rank;
	if (*beyond < BEYOND)
		return false;
	*value = hist_rank(h, rank, &seen);
	return true;
}

const char *bench_value(enum unit unit, double v, char *text, size_t size)
{
	if (isnan(v))
		snprintf(text, size, "-");
	else if (unit == UNIT_SHARE)
		snprintf(text, size, "%.3f", v);
	else if (unit == UNIT_RATE)
		snprintf(text, size, v < 1e3 ? "%.0f /s" : v < 1e6 ? "%.1f k/s" : "%.2f M/s",
			 v < 1e3 ? v : v / (v < 1e6 ? 1e3 : 1e6));
	else if (v < 1e3)
		snprintf(text, size, v < 100 ? "%.1f ns" : "%.0f ns", v);
	else if (v < 1e6)
		snprintf(text, size, "%.2f us", v / 1e3);
	else
		snprintf(text, size, "%.2f ms", v / 1e6);
	return text;
}

static void least_most(const struct figure *f, double *least, double *most)
{
	unsigned int i;

	*least = *most = f->rounds ? f->round[0] : NAN;
	for (i = 1; i < f->rounds; i++) {
		*least = fmin(*least, f->round[i]);
		*most = fmax(*most, f->round[i]);
	}
}

/* The middle half of the rounds, as a part of the median. */
static double spread(const struct figure *f)
{
	double *v, half;
	unsigned int n = f->rounds;

	if (n < 4)
		return 0;
	v = bench_alloc(n, sizeof(*v));
	sort_values(v, f->round, n);
	half = v[n - 1 - n / 4] - v[n / 4];
	free(v);
	return half / median_of(f->round, n);
}

bool bench_unsteady(const struct figure *f)
{
	return spread(f) > SPREAD;
}

void bench_report_judge(const struct plan *p)
{
	unsigned int i, n = 0, all = 0;
	uint64_t time, lag, beyond;

	for (i = 0; i < p->nfigures; i++) {
		all += p->figures[i]->rounds > 0;
		n += bench_unsteady(p->figures[i]);
	}
	if (n)
		host_warn("Of %u of %u figures, those with ~, the middle half of the rounds spreads "
			  "over more than %.0f %%.", n, all, SPREAD * 100);
	for (i = 0; i < p->ncases; i++) {
		const struct bench_case *c = &p->cases[i];

		if (c->nfigures < 2 || !strstr(c->figure[1]->name, "/lag") ||
		    !level_value(c->figure[0]->hist, 2, &time, &beyond) ||
		    !level_value(c->figure[1]->hist, 2, &lag, &beyond) ||
		    (double)lag < LAG * (double)time)
			continue;
		host_warn("%s: the lag of this program is %.0f %% of the time, both at p99: that is "
			  "not the engine's.", c->name, (double)lag / (double)time * 100);
	}
}

/* --- text ------------------------------------------------------------------------------ */

/* The median as a part of pawl's, for a figure of another engine: SUITE/CASE@ENGINE/FIGURE. */
static double part_of_pawl(const struct plan *p, const struct figure *f)
{
	const char *at = strchr(f->name, '@'), *rest = at ? strchr(at, '/') : NULL;
	unsigned int i;
	char name[64];

	if (!rest)
		return NAN;
	snprintf(name, sizeof(name), "%.*s%s", (int)(at - f->name), f->name, rest);
	for (i = 0; i < p->nfigures; i++)
		if (!strcmp(p->figures[i]->name, name))
			return median_of(f->round, f->rounds) /
			       median_of(p->figures[i]->round, p->figures[i]->rounds);
	return NAN;
}

static void text_figure(const struct plan *p, const struct figure *f)
{
	double least, most, part = part_of_pawl(p, f);
	char a[32], b[32], c[32];

	least_most(f, &least, &most);
	printf("%-30s %10s %10s %10s%s", f->name,
	       bench_value(f->unit, median_of(f->round, f->rounds), a, sizeof(a)),
	       bench_value(f->unit, least, b, sizeof(b)),
	       bench_value(f->unit, most, c, sizeof(c)), bench_unsteady(f) ? " ~" : "");
	if (!isnan(part))
		printf("%s %.3g of pawl's", bench_unsteady(f) ? "" : "  ", part);
	printf("\n");
}

static void text_hist(const struct figure *f)
{
	uint64_t value, beyond;
	char text[32];
	size_t i;

	printf("%-30s %9llu %9s", f->name, (unsigned long long)f->hist->count,
	       bench_value(UNIT_NS, (double)f->hist->min, text, sizeof(text)));
	for (i = 0; i < NLEVELS; i++)
		printf(" %9s", level_value(f->hist, i, &value, &beyond) ?
		       bench_value(UNIT_NS, (double)value, text, sizeof(text)) : "-");
	printf(" %9s\n", bench_value(UNIT_NS, (double)f->hist->max, text, sizeof(text)));
}

void bench_report_text(const struct result *r)
{
	const struct plan *p = r->plan;
	bool head = false;
	unsigned int i;
	char text[32];
	size_t k;

	printf("pawl     %s\n", pawl_version());
	host_text(p->o);
	printf("run      %u of %u rounds, %.1f s, seed %llu\n", r->rounds, p->o->rounds,
	       r->seconds, (unsigned long long)p->o->seed);
	printf("\n%-30s %10s %10s %10s   of the rounds\n", "", "median", "least", "most");
	for (i = 0; i < p->nfigures; i++)
		if (p->figures[i]->rounds)
			text_figure(p, p->figures[i]);
	for (i = 0; i < p->nfigures; i++) {
		if (!p->figures[i]->hist || !p->figures[i]->hist->count)
			continue;
		if (!head) {
			printf("\n%-30s %9s %9s", "single times of all rounds", "count", "min");
			for (k = 0; k < NLEVELS; k++)
				printf(" %9s", levels[k].name);
			printf(" %9s\n", "max");
			head = true;
		}
		text_hist(p->figures[i]);
	}
	if (head)
		printf("-: fewer than %u times are beyond this percentile.\n", BEYOND);
	host_text_warnings();
	if (bench_limit.figure)
		printf("! %s took %s, more than --break-us permits.\n", bench_limit.figure,
		       bench_value(UNIT_NS, (double)(bench_limit.to - bench_limit.from), text,
				   sizeof(text)));
	if (bench_limit.traced)
		printf("  That is the time from %.3f to %.3f us of the trace %s\n",
		       bench_limit.from_us, bench_limit.to_us, p->o->trace);
	if (!bench_limit.figure && r->interrupted)
		printf("! A signal ended the run.\n");
}

/* --- JSON ------------------------------------------------------------------------------ */

static json_t *json_hist(const struct hist *h)
{
	json_t *list = json_array();
	uint64_t value, beyond;
	size_t i;

	for (i = 0; i < NLEVELS; i++)
		if (level_value(h, i, &value, &beyond))
			json_array_append_new(list, json_pack(
				"{s:f, s:I, s:I}", "percentile", levels[i].part / 1e3, "ns",
				(json_int_t)value, "beyond", (json_int_t)beyond));
	return json_pack("{s:I, s:f, s:I, s:I, s:o}", "count", (json_int_t)h->count, "mean_ns",
			 h->count ? (double)h->sum / (double)h->count : 0, "min_ns",
			 (json_int_t)h->min, "max_ns", (json_int_t)h->max, "percentiles", list);
}

static json_t *json_figure(const struct figure *f)
{
	static const char *const units[] = { "ns", "per second", "share" };
	json_t *rounds = json_array(), *j;
	double least, most;
	unsigned int i;

	for (i = 0; i < f->rounds; i++)
		json_array_append_new(rounds, json_real(f->round[i]));
	least_most(f, &least, &most);
	j = json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:o}", "name", f->name, "what", f->what,
		      "unit", units[f->unit], "better", f->unit == UNIT_NS ? "less" : "more",
		      "median", median_of(f->round, f->rounds), "least", least, "most", most,
		      "spread", spread(f), "rounds", rounds);
	if (f->hist)
		json_object_set_new(j, "times", json_hist(f->hist));
	return j;
}

json_t *bench_report_root(const struct result *r)
{
	const struct options *o = r->plan->o;
	json_t *root, *figures = json_array();
	unsigned int i;

	for (i = 0; i < r->plan->nfigures; i++)
		if (r->plan->figures[i]->rounds)
			json_array_append_new(figures, json_figure(r->plan->figures[i]));
	root = json_pack("{s:s, s:i, s:s, s:o, s:i, s:i, s:f, s:I, s:b, s:o, s:o}", "tool", BENCH_SELF,
			 "schema_version", 1, "version", pawl_version(), "host", host_json(o),
			 "rounds", (int)r->rounds, "rounds_planned", (int)o->rounds, "seconds",
			 r->seconds, "seed", (json_int_t)o->seed, "interrupted", r->interrupted,
			 "warnings", host_warnings(), "figures", figures);
	if (bench_limit.figure)
		json_object_set_new(root, "break", json_pack(
			"{s:s, s:I}", "figure", bench_limit.figure, "ns",
			(json_int_t)(bench_limit.to - bench_limit.from)));
	if (bench_limit.traced)
		json_object_update_new(json_object_get(root, "break"), json_pack(
			"{s:s, s:f, s:f}", "trace", o->trace, "from_us", bench_limit.from_us,
			"to_us", bench_limit.to_us));
	return root;
}

int bench_report_json(const struct result *r, const char *file)
{
	FILE *f = file ? fopen(file, "we") : stdout;
	json_t *root = bench_report_root(r);
	int rc = -1;

	if (f && root)
		rc = json_dumpf(root, f, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	if (f && !rc)
		rc = fputc('\n', f) == EOF;
	if (f && file)
		rc = fclose(f) || rc;
	json_decref(root);
	/* of standard output, main() says what is wrong */
	if (rc && file)
		perror(file);
	return rc ? -1 : 0;
}
