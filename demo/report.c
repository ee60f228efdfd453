// SPDX-License-Identifier: Apache-2.0
/*
 * The output of pawl infer for people: progress on the terminal, the table, warnings; and
 * the figures that json.c prints too.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "infer.h"
#include "gpu.h"
#include "net.h"

const unsigned int quantile[NQUANTILES] = { 500, 900, 990, 999 };
const char *const quantile_name[NQUANTILES] = { "p50", "p90", "p99", "p99.9" };

/* ---- progress --------------------------------------------------------------- */

void progress(struct work *w, const struct result *r, uint64_t now)
{
	if (now < w->next_tick)
		return;
	w->next_tick = now + NSEC / 4;
	w->ticked = true;
	fprintf(stderr, "\r%.0f s, %s engine: %" PRIu64 " requests\033[K",
		(double)(now - w->started) / NSEC, r->name, r->requests);
}

/* No progress is printed in the first second. */
void progress_begin(struct work *w)
{
	w->started = now_ns();
	w->next_tick = isatty(STDERR_FILENO) ? w->started + NSEC : UINT64_MAX;
}

void progress_end(struct work *w)
{
	if (w->ticked)
		fputs("\r\033[K", stderr);
	w->ticked = false;
}

/* ---- figures ---------------------------------------------------------------- */

double result_rate(const struct result *r)
{
	return r->busy ? (double)r->requests * 1e9 / (double)r->busy : 0;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double ratio_to_naive(const struct work *w, const struct result *results, int n)
{
	unsigned int rounds = results[0].nrates, i;
	double ratio[MAX_ROUNDS];

	if (n < 2 || w->opt.rate > 0 || !rounds || rounds != results[1].nrates)
		return 0;
	for (i = 0; i < rounds; i++)
		ratio[i] = results[0].rate[i] / results[1].rate[i];
	qsort(ratio, rounds, sizeof(ratio[0]), compare_doubles);
	return (ratio[(rounds - 1) / 2] + ratio[rounds / 2]) / 2;
}

void cpu_model(char *buf, size_t len)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[512], *p;

	snprintf(buf, len, "unknown CPU");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "model name", 10) && strncmp(line, "Processor", 9))
			continue;
		p = strchr(line, ':');
		if (!p)
			continue;
		p += strspn(p, ": \t");
		p[strcspn(p, "\n")] = 0;
		snprintf(buf, len, "%s", p);
		break;
	}
	if (f)
		fclose(f);
}

/* A duration in three digits. */
const char *ns_text(char *buf, size_t len, double ns)
{
	static const char *const unit[] = { "ns", "us", "ms", "s" };
	unsigned int i;

	for (i = 0; i < 3 && ns >= 999.5; i++)
		ns /= 1000;
	snprintf(buf, len, "%.*f %s", !i || ns >= 99.95 ? 0 : ns >= 9.995 ? 1 : 2, ns, unit[i]);
	return buf;
}

const char *quantile_text(char *buf, size_t len, const struct hist *h, unsigned int q)
{
	uint64_t ns;

	if (hist_quantile(h, q, &ns))
		return "-";
	return ns_text(buf, len, (double)ns);
}

const char *share_text(char *buf, size_t len, uint32_t part, uint32_t all)
{
	if (!all)
		return "-";
	snprintf(buf, len, "%" PRIu32 " of %" PRIu32 "  %6.2f %%", part, all,
		 100.0 * part / all);
	return buf;
}

/* ---- output ----------------------------------------------------------------- */

void report_warnings(struct work *w, const struct result *r)
{
	if (w->opt.rate <= 0)
		return;
	if (r->late * 100 > r->requests)
		warn(w, "%s engine: the generator fell behind: %" PRIu64 " of %" PRIu64
		     " requests were pushed over 1 ms late with slots free", r->name, r->late,
		     r->requests);
	if ((r->full + r->unpushed) * 100 > r->requests)
		warn(w, "%s engine: overloaded: %" PRIu64 " arrivals found no free slot (--in-flight), "
		     "%" PRIu64 " were never pushed", r->name, r->full, r->unpushed);
	if (result_rate(r) < 0.95 * w->opt.rate && r->requests >= 1000)
		warn(w, "%s engine: %.0f requests/s were asked for, %.0f reached", r->name,
		     w->opt.rate, result_rate(r));
}

void report_head(const struct work *w)
{
	const struct options *o = &w->opt;
	char cpu[128];

	cpu_model(cpu, sizeof(cpu));
	printf("pawl %s: digits through a neural network, every request a graph of ops\n\n",
	       pawl_version());
	printf("model a    %s: %d layers, %d -> %d, %zu weights\n", w->path[0],
	       w->shape->nlayers, w->shape->in_dim, w->shape->out_dim, w->nweights);
	printf("model b    %s: the same layers, other weights\n", w->path[1]);
	printf("images     %s: %" PRIu32 " of %" PRIu32 " x %" PRIu32 ", %" PRIu32
	       " of them held out of training\n", w->images_path, w->images->count,
	       w->images->width, w->images->height, w->images->held_out);
	if (o->rate > 0)
		printf("load       open loop, %g requests/s (%s arrivals), at most %u in flight",
		       o->rate, o->poisson ? "poisson" : "constant", o->in_flight);
	else
		printf("load       closed loop, %u requests in flight", o->in_flight);
	printf(", %u images each\n", o->batch);
	if (o->reload_every)
		printf("reloads    a and b change places every %" PRIu64
		       " requests, by one op that writes all weights\n", o->reload_every);
	printf("machine    %s, %d CPU%s; %s\n", cpu, w->cpus, w->cpus == 1 ? "" : "s",
	       net_gemm());
	if (o->device != PAWL_CPU)
		printf("device     %s: the layers are computed there\n", gpu_name());
	putchar('\n');
	fflush(stdout);
}

static void print_result(const struct work *w, const struct result *r)
{
	char buf[32], workers[16] = "-";
	size_t q;

	if (r->kind != PAWL_NAIVE)
		snprintf(workers, sizeof(workers), "%d", r->workers);
	printf("%-11s %7s %10" PRIu64 " %11.0f %11.0f", r->name, workers, r->requests,
	       result_rate(r), result_rate(r) * w->opt.batch);
	for (q = 0; q < NQUANTILES; q++)
		printf(" %8s", quantile_text(buf, sizeof(buf), &r->latency, quantile[q]));
	printf(" %8s\n", r->latency.count ?
	       ns_text(buf, sizeof(buf), (double)r->latency.max) : "-");
}

/* One line per engine. */
static void print_table(const struct work *w, const struct result *results, int n)
{
	double ratio = ratio_to_naive(w, results, n);
	size_t q;
	int i;

	printf("%-11s %7s %10s %11s %11s", "engine", "workers", "requests", "requests/s",
	       "images/s");
	for (q = 0; q < NQUANTILES; q++)
		printf(" %8s", quantile_name[q]);
	printf(" %8s\n", "max");
	for (i = 0; i < n; i++)
		print_result(w, &results[i]);
	if (ratio > 0)
		printf("%-11s %7s %10s %10.2fx  (requests/s by the naive engine's; median of %u turns)\n",
		       "ratio", "", "", ratio, results[0].nrates);
}

/* Explain the latency in the table. */
static void print_legend(const struct work *w, const struct result *results, int n)
{
	bool closed = w->opt.rate <= 0, missing = false;
	uint64_t ns;
	int i;

	for (i = 0; i < n; i++)
		missing |= hist_quantile(&results[i].latency, 999, &ns) != 0;
	printf("\np50 to max: the latency of a request, from its %s to the end of its last\nlayer.",
	       closed ? "push" : "intended arrival");
	if (closed && w->opt.engine != PAWL_NAIVE)
		printf("  With %u in flight it includes waiting for those before.%s",
		       w->opt.in_flight, n == 2 ?
		       "  The naive\nengine runs every op inside its push, on one thread: nothing waits." : "");
	printf("%s\n\n", missing ? "\n-: too few requests to tell that percentile." : "");
}

static void print_accuracy(const struct work *w)
{
	char buf[2][64];
	int v;

	printf("%-11s %10s   %-25s %-25s\n", "weights", "requests", "right, all images",
	       "right, held out");
	for (v = 0; v < 2; v++) {
		struct accuracy a = accuracy_of(w, v);

		printf("model %c     %10" PRIu64 "   %-25s %s\n", 'a' + v, w->answers[v],
		       share_text(buf[0], sizeof(buf[0]), a.right, a.seen),
		       share_text(buf[1], sizeof(buf[1]), a.held_right, a.held_seen));
	}
	printf("\n");
}

/* Print the engine's counters. */
static void print_stats(const struct result *r)
{
	const struct pawl_stats *s = &r->stats;
	char buf[3][32];

	printf("%-10s %" PRIu64 " ops pushed, %" PRIu64 " helped, %" PRIu64
	       " handed, %" PRIu64 " stolen; %" PRIu64 " sleeps, %" PRIu64
	       " wakes\n", r->name, s->pushed, s->helped, s->handed, s->stolen,
	       s->sleeps, s->wakes);
	if (r->reloads)
		printf("%-10s %" PRIu64 " reloads, from push to swapped p50 %s, max %s\n", "",
		       r->reloads,
		       quantile_text(buf[0], sizeof(buf[0]), &r->reload, 500),
		       ns_text(buf[1], sizeof(buf[1]), (double)r->reload.max));
	if (r->lateness.count)
		printf("%-10s arrivals were pushed late by p50 %s, p99 %s, max %s\n", "",
		       quantile_text(buf[0], sizeof(buf[0]), &r->lateness, 500),
		       quantile_text(buf[1], sizeof(buf[1]), &r->lateness, 990),
		       ns_text(buf[2], sizeof(buf[2]), (double)r->lateness.max));
}

static void print_verdict(const struct work *w, const struct result *results, int n,
			  bool verified)
{
	uint64_t checked = 0, wrong = 0, mixed = 0, reloads = 0;
	int i;

	for (i = 0; i < n; i++) {
		checked += results[i].checked;
		wrong += results[i].wrong;
		mixed += results[i].mixed;
		reloads += results[i].reloads;
	}
	if (verified)
		printf("\nVerified: each of %" PRIu64 " answers is equal%s to that of a serial loop\n"
		       "over the layers; every request saw one version of the weights (%" PRIu64 " reloads).\n",
		       checked, w->opt.device == PAWL_CUDA ? ", in class and to 0.0001," :
		       ", to the last bit,", reloads);
	else
		printf("\nFAILED: of %" PRIu64 " answers %" PRIu64 " differ from the serial computation and %"
		       PRIu64 " saw\nmore than one version of the weights.\n", checked, wrong, mixed);
}

void report_text(const struct work *w, const struct result *results, int n, bool verified)
{
	int i;

	print_table(w, results, n);
	print_legend(w, results, n);
	print_accuracy(w);
	for (i = 0; i < n; i++)
		print_stats(&results[i]);
	if (w->opt.trace)
		printf("\ntrace      %s, of the %s engine; opens in https://ui.perfetto.dev\n",
		       w->opt.trace, results[0].name);
	print_verdict(w, results, n, verified);
}
