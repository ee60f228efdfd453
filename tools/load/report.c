// SPDX-License-Identifier: Apache-2.0
/* The results as text, as JSON, and in the percentile format of HdrHistogram. */

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "load.h"

#define NOTES		7
#define BUSY_SHARE	0.8	/* of a CPU: the client may be the bottleneck */
#define STARVED_SHARE	0.1	/* of the time: other programs had the CPU */
#define LAG_SHARE	0.2	/* of the latency, both at p99 */

/* In units of 1/10000. */
static const struct {
	unsigned int part;
	const char *name;
} levels[] = {
	{ 5000, "p50" }, { 9000, "p90" }, { 9500, "p95" }, { 9900, "p99" },
	{ 9990, "p99.9" }, { 9999, "p99.99" },
};

#define NLEVELS (sizeof(levels) / sizeof(levels[0]))

/* The value of a level, and how many samples are beyond it.  False if there is none. */
static bool level_value(const struct hist *h, size_t level, uint64_t *value, uint64_t *beyond)
{
	uint64_t rank = (h->count * levels[level].part + 9999) / 10000, seen;

	*beyond = h->count - rank;
	if (!rank || !*beyond)
		return false;
	*value = hist_rank(h, rank, &seen);
	return true;
}

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static double per_second(const struct result *r, uint64_t n)
{
	return share(n, r->window_ns) * 1e9;
}

/* --- what makes the figures doubtful ---------------------------------------------- */

struct notes {
	unsigned int n;
	char text[NOTES][256];
};

static void __attribute__((format(printf, 2, 3))) note(struct notes *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->text[s->n++], sizeof(s->text[0]), fmt, ap);
	va_end(ap);
}

static void judge(const struct options *o, const struct result *r, const struct tally *y,
		  struct notes *s)
{
	uint64_t lag = 0, latency = 0, beyond, missing = y->lost + y->timed_out + y->open;
	double busy = share(r->cpu_ns, r->wall_ns), wait = share(r->starved_ns, r->wall_ns);

	s->n = 0;
	if (busy > BUSY_SHARE)
		note(s, "the client is the bottleneck: its busiest thread used %.0f %% of a "
		     "CPU; use more threads or machines", busy * 100);
	if (wait > STARVED_SHARE)
		note(s, "the client waited for a CPU for %.0f %% of the time, because other "
		     "programs used it", wait * 100);
	if (level_value(&r->lag, 3, &lag, &beyond) &&
	    level_value(&y->answers, 3, &latency, &beyond) &&
	    (double)lag > LAG_SHARE * (double)latency)
		note(s, "the client is late: its lag has a p99 of %.3f ms, which is %.0f %% of "
		     "the latency's", ms(lag), share(lag, latency) * 100);
	if (r->waited)
		note(s, "all %u connections were in use: %llu requests waited for one; "
		     "raise --connections", o->connections, (unsigned long long)r->waited);
	if (r->interrupted)
		note(s, "a signal ended the run");
	if (missing)
		note(s, "%llu requests have no answer and are not in the percentiles",
		     (unsigned long long)missing);
	if (r->failure[0])
		note(s, "the first failure: %.200s", r->failure);
}

/* --- text ------------------------------------------------------------------------------- */

void load_report_head(const struct options *o)
{
	unsigned int i;
	size_t k, most = 0;

	printf("%s ", o->nmodels == 1 ? "model" : "models");
	for (i = 0; i < o->nmodels; i++) {
		const struct model *m = &o->models[i];

		for (k = 0; k < m->nrequests; k++)
			if (m->requests[k].n > most)
				most = m->requests[k].n;
		printf("%s%s%s%s", i ? ", " : "", m->name, m->version ? "/" : "",
		       m->version ? m->version : "");
	}
	printf(" at %s, %s, %s tensors, requests of up to %zu bytes\n", o->authority,
	       o->grpc ? "gRPC" : "HTTP/1.1", o->json ? "JSON" : "binary", most);
}

static void step_title(const struct options *o, const struct step *s)
{
	if (s->rate)
		printf("\nopen loop, %.12g/s, %s arrivals", s->rate,
		       o->poisson ? "Poisson" : "constant");
	else
		printf("\nclosed loop, %u in flight", s->concurrency);
	if (o->requests)
		printf(", %llu requests", (unsigned long long)o->requests);
	else
		printf(", %g s", (double)o->duration_ns / 1e9);
	printf(" after %g s of warm-up\n", (double)o->warmup_ns / 1e9);
}

static void tally_line(const char *name, const struct tally *y)
{
	printf("  %s%llu due: %llu answered", name, (unsigned long long)y->due,
	       (unsigned long long)(y->good + y->late));
	if (y->late)
		printf(" (%llu late)", (unsigned long long)y->late);
	printf(", %llu refused, %llu failed, %llu lost, %llu timed out",
	       (unsigned long long)y->refused, (unsigned long long)y->failed,
	       (unsigned long long)y->lost, (unsigned long long)y->timed_out);
	if (y->open)
		printf(", %llu open", (unsigned long long)y->open);
	printf("\n");
}

static void cell(bool have, uint64_t value, uint64_t beyond)
{
	if (have)
		printf(" %11.3f %9llu", ms(value), (unsigned long long)beyond);
	else
		printf(" %11s %9s", "-", "");
}

static void table(const struct hist *const *h, const char *const *names, unsigned int n)
{
	uint64_t value = 0, beyond = 0;
	unsigned int i;
	size_t k;
	bool have;

	printf("  ms    ");
	for (i = 0; i < n; i++)
		printf(" %11.11s %9s", names[i], "beyond");
	printf("\n  mean  ");
	for (i = 0; i < n; i++)
		printf(" %11.3f %9s", h[i]->count ? ms(h[i]->sum / h[i]->count) : 0, "");
	for (k = 0; k < NLEVELS; k++) {
		printf("\n  %-6s", levels[k].name);
		for (i = 0; i < n; i++) {
			have = level_value(h[i], k, &value, &beyond);
			cell(have, value, beyond);
		}
	}
	printf("\n  max   ");
	for (i = 0; i < n; i++)
		cell(h[i]->count, h[i]->max, 0);
	printf("\n");
}

void load_report_step(const struct options *o, const struct step *s, const struct result *r)
{
	const struct hist *h[MAX_MODELS + 3];
	const char *names[MAX_MODELS + 3];
	struct notes notes;
	struct tally y;
	char name[160];
	unsigned int i, n = 0;

	load_tally_sum(o, r, &y);
	step_title(o, s);
	tally_line("", &y);
	for (i = 0; o->nmodels > 1 && i < o->nmodels; i++) {
		snprintf(name, sizeof(name), "%.150s: ", o->models[i].name);
		tally_line(name, &r->tally[i]);
	}
	printf("  throughput %.1f/s", per_second(r, y.arrived));
	if (o->limit_ns)
		printf(", goodput %.1f/s within %g ms", per_second(r, y.arrived_good),
		       ms(o->limit_ns));
	printf("\n");
	h[n] = &y.answers, names[n++] = "answered";
	for (i = 0; o->nmodels > 1 && i < o->nmodels; i++)
		h[n] = &r->tally[i].answers, names[n++] = o->models[i].name;
	if (y.refusals.count)
		h[n] = &y.refusals, names[n++] = "refused";
	if (s->rate)
		h[n] = &r->lag, names[n++] = "own lag";
	table(h, names, n);
	printf("  client: %u %s, %llu connections opened (%llu while measuring), %.1f us of "
	       "CPU a request, busiest thread %.1f %% of a CPU\n", o->threads,
	       o->threads == 1 ? "thread" : "threads", (unsigned long long)r->opened,
	       (unsigned long long)r->opened_late, share(r->cpu_total_ns, r->sent) / 1e3,
	       share(r->cpu_ns, r->wall_ns) * 100);
	if (r->retried)
		printf("  %llu requests were sent again, on another connection: the server closed the one "
		       "before it processed them\n", (unsigned long long)r->retried);
	judge(o, r, &y, &notes);
	for (i = 0; i < notes.n; i++)
		printf("  ! %s\n", notes.text[i]);
	fflush(stdout);
}

static void brief(const struct hist *h, size_t level)
{
	uint64_t value, beyond;

	if (level_value(h, level, &value, &beyond))
		printf(" %9.3f", ms(value));
	else
		printf(" %9s", "-");
}

/* A line for each run. */
void load_report_curve(const struct options *o, const struct result *r)
{
	struct notes notes;
	struct tally y;
	unsigned int i;
	size_t k;

	printf("\n%10s %10s %10s %9s", o->steps[0].rate ? "rate/s" : "in flight", "answers/s",
	       "good/s", "refused");
	for (k = 0; k < NLEVELS; k++)
		printf(" %9s", levels[k].name);
	printf(" %9s\n", "max ms");
	for (i = 0; i < o->nsteps; i++) {
		load_tally_sum(o, &r[i], &y);
		judge(o, &r[i], &y, &notes);
		if (o->steps[i].rate)
			printf("%10.9g", o->steps[i].rate);
		else
			printf("%10u", o->steps[i].concurrency);
		printf(" %10.1f %10.1f %9llu", per_second(&r[i], y.arrived),
		       per_second(&r[i], y.arrived_good), (unsigned long long)y.refused);
		for (k = 0; k < NLEVELS; k++)
			brief(&y.answers, k);
		printf(" %9.3f%s\n", ms(y.answers.max), notes.n ? " !" : "");
	}
}

/* --- JSON --------------------------------------------------------------------------------- */

static json_t *json_hist(const struct hist *h)
{
	json_t *list = json_array(), *one;
	uint64_t value, beyond;
	size_t k;

	for (k = 0; k < NLEVELS; k++) {
		if (!level_value(h, k, &value, &beyond))
			continue;
		one = json_pack("{s:f, s:f, s:I}", "percentile", levels[k].part / 100.0,
				"ms", ms(value), "beyond", (json_int_t)beyond);
		json_array_append_new(list, one);
	}
	return json_pack("{s:I, s:f, s:f, s:f, s:o}", "count", (json_int_t)h->count,
			 "mean_ms", h->count ? ms(h->sum / h->count) : 0, "min_ms", ms(h->min),
			 "max_ms", ms(h->max), "percentiles", list);
}

static json_t *json_tally(const struct result *r, const struct tally *y)
{
	json_t *j = json_object();
	const struct {
		const char *name;
		uint64_t n;
	} counts[] = {
		{ "due", y->due },
		{ "answered", y->good + y->late }, { "good", y->good }, { "late", y->late },
		{ "refused", y->refused }, { "failed", y->failed }, { "lost", y->lost },
		{ "timed_out", y->timed_out }, { "open", y->open },
	};
	size_t i;

	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		json_object_set_new(j, counts[i].name, json_integer((json_int_t)counts[i].n));
	json_object_set_new(j, "throughput", json_real(per_second(r, y->arrived)));
	json_object_set_new(j, "goodput", json_real(per_second(r, y->arrived_good)));
	json_object_set_new(j, "latency", json_hist(&y->answers));
	json_object_set_new(j, "refusal_latency", json_hist(&y->refusals));
	return j;
}

static json_t *json_run(const struct options *o, const struct step *s, const struct result *r)
{
	json_t *j, *list = json_array(), *codes = json_object(), *models = json_object();
	struct notes notes;
	struct tally y;
	unsigned int i;
	char name[16], key[512];

	load_tally_sum(o, r, &y);
	judge(o, r, &y, &notes);
	j = json_tally(r, &y);
	if (s->rate) {
		json_object_set_new(j, "rate", json_real(s->rate));
		json_object_set_new(j, "arrivals",
				    json_string(o->poisson ? "poisson" : "constant"));
		json_object_set_new(j, "lag", json_hist(&r->lag));
	} else {
		json_object_set_new(j, "concurrency", json_integer(s->concurrency));
	}
	json_object_set_new(j, "measured_s", json_real((double)r->window_ns / 1e9));
	json_object_set_new(j, "interrupted", json_boolean(r->interrupted));
	json_object_set_new(j, "client", json_pack(
		"{s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "connections_opened", (json_int_t)r->opened,
		"connections_opened_while_measuring", (json_int_t)r->opened_late,
		"waited_for_connection", (json_int_t)r->waited,
		"sent_again", (json_int_t)r->retried,
		"cpu_us_per_request", share(r->cpu_total_ns, r->sent) / 1e3,
		"cpu_share_of_busiest_thread", share(r->cpu_ns, r->wall_ns),
		"starved_share", share(r->starved_ns, r->wall_ns)));
	for (i = 0; i < MAX_STATUS; i++)
		if (r->status[i]) {
			snprintf(name, sizeof(name), "%u", i);
			json_object_set_new(codes, name,
					    json_integer((json_int_t)r->status[i]));
		}
	json_object_set_new(j, "status", codes);
	for (i = 0; i < o->nmodels; i++) {
		snprintf(key, sizeof(key), "%.250s%s%.250s", o->models[i].name,
			 o->models[i].version ? "/" : "",
			 o->models[i].version ? o->models[i].version : "");
		json_object_set_new(models, key, json_tally(r, &r->tally[i]));
	}
	json_object_set_new(j, "models", models);
	for (i = 0; i < notes.n; i++)
		json_array_append_new(list, json_string(notes.text[i]));
	json_object_set_new(j, "notes", list);
	return j;
}

int load_report_json(const struct options *o, const struct result *r)
{
	json_t *root, *runs = json_array();
	bool out = !strcmp(o->json_out, "-");
	FILE *f = out ? stdout : fopen(o->json_out, "we");
	unsigned int i;
	int rc = -1;

	for (i = 0; i < o->nsteps; i++)
		json_array_append_new(runs, json_run(o, &o->steps[i], &r[i]));
	root = json_pack("{s:s, s:s, s:s, s:f, s:f, s:o}", "server", o->authority, "protocol",
			 o->grpc ? "grpc" : "http", "tensors",
			 o->json ? "json" : "binary", "warmup_s", (double)o->warmup_ns / 1e9,
			 "limit_ms", ms(o->limit_ns), "runs", runs);
	if (f && root)
		rc = json_dumpf(root, f, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
	if (f && !rc && out)
		rc = putchar('\n') == EOF;
	if (f && !out)
		rc = fclose(f) || rc;
	json_decref(root);
	if (rc)
		perror(o->json_out);
	return rc ? -1 : 0;
}

/* --- HdrHistogram's format ------------------------------------------------------ */

static double deviation(const struct hist *h)
{
	double mean = (double)h->sum / (double)h->count, sum = 0, v;
	uint64_t rank = 1, seen;

	for (; rank <= h->count; rank = seen + 1) {
		v = (double)hist_rank(h, rank, &seen) - mean;
		sum += v * v * (double)(seen - rank + 1);
	}
	return sqrt(sum / (double)h->count);
}

/* Five steps from each level to the one that halves the distance to 1. */
static void write_levels(FILE *f, const struct hist *h)
{
	double level = 0, half = 1;
	uint64_t rank, seen = 0, value;
	int step = 0;

	fprintf(f, "       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
	while (seen < h->count) {
		rank = (uint64_t)ceil(level * (double)h->count);
		value = hist_rank(h, rank ? rank : 1, &seen);
		if (seen < h->count)
			fprintf(f, "%12.6f %14.12f %10llu %14.2f\n", ms(value), level,
				(unsigned long long)seen, 1 / (1 - level));
		level += half / 10;
		if (++step == 5) {
			step = 0;
			half /= 2;
			level = 1 - half;
		}
	}
	if (h->count)
		fprintf(f, "%12.6f %14.12f %10llu\n", ms(h->max), 1.0,
			(unsigned long long)seen);
	fprintf(f, "#[Mean    = %12.6f, StdDeviation   = %12.6f]\n",
		h->count ? ms(h->sum) / (double)h->count : 0,
		h->count ? deviation(h) / 1e6 : 0);
	fprintf(f, "#[Max     = %12.6f, Total count    = %12llu]\n", ms(h->max),
		(unsigned long long)h->count);
	/* for readers that scale: the powers of two, and the steps in each */
	fprintf(f, "#[Buckets = %12u, SubBuckets     = %12u]\n", 64 - HIST_BITS,
		1u << HIST_BITS);
}

int load_report_hgrm(const struct options *o, const struct step *s, const struct result *r)
{
	struct tally y;
	char path[4096];
	FILE *f;
	int rc = -1;

	if (s->rate)
		snprintf(path, sizeof(path), "%s-%.12g.hgrm", o->hgrm, s->rate);
	else
		snprintf(path, sizeof(path), "%s-c%u.hgrm", o->hgrm, s->concurrency);
	load_tally_sum(o, r, &y);
	f = fopen(path, "we");
	if (f) {
		write_levels(f, &y.answers);
		rc = ferror(f);
		rc = fclose(f) || rc;
	}
	if (rc)
		perror(path);
	return rc ? -1 : 0;
}
