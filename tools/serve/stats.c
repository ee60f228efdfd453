// SPDX-License-Identifier: Apache-2.0
/*
 * Statistics of models as Triton's statistics extension has them, and /metrics as text for
 * Prometheus, with Triton's names and with histograms.  Counters are read while threads add to
 * them, so two figures of one answer may differ by the requests that end meanwhile.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

static const char *const hist_name[] = { "queue", "compute", "request" };

void stats_add(struct counter *c, uint64_t ns)
{
	add_relaxed(&c->n, 1);
	add_relaxed(&c->ns, ns);
}

void stats_hist(struct stats *s, int which, uint64_t ns)
{
	uint64_t us = ns / 1000;
	unsigned int k = us < 64 ? 0 : 58 - (unsigned int)__builtin_clzll(us);

	/* bucket k holds what is below 64 us * 2^k */
	add_relaxed(&s->hist[which][k < HIST_LE ? k : HIST_LE - 1], 1);
	add_relaxed(&s->hist_ns[which], ns);
}

static bool counter_json(struct conn *c, const char *name, struct counter *k, bool last)
{
	return buf_printf(c->loop, &c->out,
			  "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}%s", name,
			  load_relaxed(&k->n), load_relaxed(&k->ns), last ? "" : ",");
}

static bool model_json(struct conn *c, struct entry *e, struct version *v)
{
	struct loop *l = c->loop;
	struct buf *b = &c->out;
	struct stats *s = &v->stats;
	struct counter none = { 0 };
	const char *sep = "";
	unsigned int i;
	uint64_t n;
	bool ok;

	ok = buf_printf(l, b, "{\"name\":") && buf_json(l, b, e->name) &&
		buf_printf(l, b, ",\"version\":\"%" PRId64 "\",\"last_inference\":%" PRIu64
			   ",\"inference_count\":%" PRIu64 ",\"execution_count\":%" PRIu64
			   ",\"inference_stats\":{", v->m->version, load_relaxed(&s->last_ms),
			   load_relaxed(&s->inferences), load_relaxed(&s->executions)) &&
		counter_json(c, "success", &s->success, false) &&
		counter_json(c, "fail", &s->fail, false) &&
		counter_json(c, "queue", &s->queue, false) &&
		counter_json(c, "compute_input", &s->input, false) &&
		counter_json(c, "compute_infer", &s->infer, false) &&
		counter_json(c, "compute_output", &s->output, false) &&
		counter_json(c, "cache_hit", &none, false) &&
		counter_json(c, "cache_miss", &none, true) &&
		buf_printf(l, b, "},\"response_stats\":{},\"batch_stats\":[");
	for (i = 1; ok && i <= (e->conf.max_batch ? e->conf.max_batch : 1); i++) {
		n = load_relaxed(&s->batch[i].n);
		if (!n)
			continue;
		ok = buf_printf(l, b,
				"%s{\"batch_size\":%u,\"compute_input\":{\"count\":%" PRIu64
				",\"ns\":%" PRIu64 "},\"compute_infer\":{\"count\":%" PRIu64
				",\"ns\":%" PRIu64 "},\"compute_output\":{\"count\":%" PRIu64
				",\"ns\":0}}",
				sep, i, n, load_relaxed(&s->batch[i].input), n,
				load_relaxed(&s->batch[i].infer), n);
		sep = ",";
	}
	return ok && buf_printf(l, b, "],\"memory_usage\":[]}");
}

void stats_json(struct conn *c, const char *model, size_t n, int64_t version)
{
	const struct table *t = c->loop->table;
	bool ok, first = true;
	unsigned int i;

	if (!out_begin(c))
		return;
	ok = buf_printf(c->loop, &c->out, "{\"model_stats\":[");
	for (i = 0; ok && i < t->n; i++) {
		if (model &&
		    (strlen(t->at[i].e->name) != n || memcmp(t->at[i].e->name, model, n) ||
		     (version != NEWEST && t->at[i].v->m->version != version)))
			continue;
		ok = (first || buf_add(c->loop, &c->out, ",", 1)) &&
			model_json(c, t->at[i].e, t->at[i].v);
		first = false;
	}
	if (ok && buf_printf(c->loop, &c->out, "]}"))
		out_end(c, 200, "application/json", NULL);
	else
		conn_error(c, 503, "out of memory");
}

/* --- /metrics ------------------------------------------------------------------ */

static bool family(struct conn *c, const char *name, const char *type, const char *help)
{
	return buf_printf(c->loop, &c->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
			  type);
}

/* A sample with the labels of a model, whose name has no quotes (repo.c). */
static bool sample(struct conn *c, const char *name, const struct table *t, unsigned int i,
		   const char *label, uint64_t v)
{
	return buf_printf(c->loop, &c->out,
			  "%s{model=\"%s\",version=\"%" PRId64 "\"%s} %" PRIu64 "\n", name,
			  t->at[i].e->name, t->at[i].v->m->version, label, v);
}

struct metric {
	const char *name, *help;
	size_t at;
	bool us;		/* kept in ns */
};

#define OF(field) offsetof(struct stats, field)
static const struct metric metrics[] = {
	{ "nv_inference_request_success", "Requests that were answered", OF(success.n), false },
	{ "nv_inference_request_failure", "Requests that failed", OF(fail.n), false },
	{ "nv_inference_count", "Inferences: rows of batches", OF(inferences), false },
	{ "nv_inference_exec_count", "Runs of the model", OF(executions), false },
	{ "nv_inference_request_duration_us", "Time of requests, from arrival", OF(success.ns),
	  true },
	{ "nv_inference_queue_duration_us", "Time in the queue", OF(queue.ns), true },
	{ "nv_inference_compute_input_duration_us", "Time of copies into slots", OF(input.ns),
	  true },
	{ "nv_inference_compute_infer_duration_us", "Time of runs", OF(infer.ns), true },
	{ "nv_inference_compute_output_duration_us", "Time to write answers", OF(output.ns),
	  true },
	{ "pawl_serve_submitted_total", "Requests that were parsed: they succeed, fail, or are "
	  "canceled", OF(submitted), false },
	{ "pawl_serve_plans_total", "Slots planned for requests", OF(plans), false },
	{ "pawl_serve_alone_total", "Requests run again alone, since their batch failed",
	  OF(alone), false },
	{ "pawl_serve_light_total", "Runs that needed no worker", OF(light), false },
	{ "pawl_serve_refused_total", "Requests beyond the limits of the queue", OF(refused),
	  false },
	{ "pawl_serve_timed_out_total", "Requests that missed their deadline", OF(timed_out),
	  false },
	{ "pawl_serve_canceled_total", "Requests whose client was gone", OF(canceled), false },
};

static bool histograms(struct conn *c, const struct table *t)
{
	char name[64], label[64];
	unsigned int i, k, h;
	struct stats *s;
	uint64_t sum;
	bool ok = true;

	for (h = 0; ok && h < 3; h++) {
		snprintf(name, sizeof(name), "pawl_serve_%s_seconds", hist_name[h]);
		ok = family(c, name, "histogram", "Time in seconds");
		for (i = 0; ok && i < t->n; i++) {
			s = &t->at[i].v->stats;
			sum = 0;
			snprintf(name, sizeof(name), "pawl_serve_%s_seconds_bucket",
				 hist_name[h]);
			for (k = 0; ok && k < HIST_LE; k++) {
				sum += load_relaxed(&s->hist[h][k]);
				if (k < HIST_LE - 1)
					snprintf(label, sizeof(label), ",le=\"%.6f\"",
						 64e-6 * (double)(1u << k));
				else
					snprintf(label, sizeof(label), ",le=\"+Inf\"");
				ok = sample(c, name, t, i, label, sum);
			}
			snprintf(name, sizeof(name), "pawl_serve_%s_seconds_count",
				 hist_name[h]);
			ok = ok && sample(c, name, t, i, "", sum) &&
			     buf_printf(c->loop, &c->out,
					"pawl_serve_%s_seconds_sum{model=\"%s\","
					"version=\"%" PRId64 "\"} %.9f\n",
					hist_name[h], t->at[i].e->name, t->at[i].v->m->version,
					(double)load_relaxed(&s->hist_ns[h]) / 1e9);
		}
	}
	return ok;
}

/* What Prometheus' libraries say of a process. */
static bool process(struct conn *c)
{
	struct rusage use;
	unsigned long pages[2] = { 0 };
	FILE *f = fopen("/proc/self/statm", "r");

	if (f) {
		if (fscanf(f, "%lu %lu", &pages[0], &pages[1]) != 2)
			pages[0] = pages[1] = 0;
		fclose(f);
	}
	getrusage(RUSAGE_SELF, &use);
	return family(c, "pawl_serve_build_info", "gauge", "The version of the program") &&
		buf_printf(c->loop, &c->out, "pawl_serve_build_info{version=\"%s\"} 1\n",
			   pawl_version()) &&
		family(c, "process_cpu_seconds_total", "counter", "CPU time in seconds") &&
		buf_printf(c->loop, &c->out, "process_cpu_seconds_total %.6f\n",
			   (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
			   (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6) &&
		family(c, "process_virtual_memory_bytes", "gauge", "Size of the address space") &&
		buf_printf(c->loop, &c->out, "process_virtual_memory_bytes %lu\n",
			   pages[0] * (unsigned long)sysconf(_SC_PAGESIZE)) &&
		family(c, "process_resident_memory_bytes", "gauge", "Resident size") &&
		buf_printf(c->loop, &c->out, "process_resident_memory_bytes %lu\n",
			   pages[1] * (unsigned long)sysconf(_SC_PAGESIZE));
}

void stats_metrics(struct conn *c)
{
	struct server *sv = c->loop->sv;
	const struct table *t = c->loop->table;
	unsigned int i, k;
	const char *why;
	uint64_t v;
	bool ok;
	int n;

	if (!out_begin(c))
		return;
	ok = true;
	for (k = 0; ok && k < sizeof(metrics) / sizeof(metrics[0]); k++) {
		ok = family(c, metrics[k].name, "counter", metrics[k].help);
		for (i = 0; ok && i < t->n; i++) {
			v = load_relaxed(
				(u64 *)(void *)((char *)&t->at[i].v->stats + metrics[k].at));
			ok = sample(c, metrics[k].name, t, i, "", metrics[k].us ? v / 1000 : v);
		}
	}
	ok = ok &&
	     family(c, "nv_inference_pending_request_count", "gauge", "Requests in the queue");
	for (i = 0; ok && i < t->n; i++)
		ok = sample(c, "nv_inference_pending_request_count", t, i, "",
			    load_relaxed(&t->at[i].e->pending));
	ok = ok && family(c, "pawl_serve_backend", "gauge", "What runs a version");
	for (i = 0; ok && i < t->n; i++)
		ok = buf_printf(c->loop, &c->out,
				"pawl_serve_backend{model=\"%s\",version=\"%" PRId64
				"\",backend=\"%s\"} 1\n", t->at[i].e->name,
				t->at[i].v->m->version, t->at[i].v->m->backend);
	ok = ok && family(c, "pawl_serve_failed_version", "gauge",
			  "Versions that could not be loaded; version 0: there is none");
	for (i = 0; ok && i < t->nfailed; i++)
		ok = buf_printf(c->loop, &c->out,
				"pawl_serve_failed_version{model=\"%s\",version=\"%" PRId64
				"\"} 1\n", t->failed[i].name, t->failed[i].f.version);
	ok = ok && family(c, "pawl_serve_version_ready", "gauge",
			  "1: the version is served, 0: it could not be loaded");
	for (i = 0; ok && i < t->n; i++)
		ok = sample(c, "pawl_serve_version_ready", t, i, "", 1);
	for (i = 0; ok && i < t->nfailed; i++)
		ok = buf_printf(c->loop, &c->out,
				"pawl_serve_version_ready{model=\"%s\",version=\"%" PRId64
				"\"} 0\n", t->failed[i].name, t->failed[i].f.version);
	ok = ok && histograms(c, t) && process(c) &&
		family(c, "pawl_serve_ready", "gauge", "1 if health/ready answers 200") &&
		buf_printf(c->loop, &c->out, "pawl_serve_ready %d\n",
			   loop_ready(c->loop, &why)) &&
		family(c, "pawl_serve_models", "gauge", "Models that are served") &&
		buf_printf(c->loop, &c->out, "pawl_serve_models %u\n", t->n) &&
		family(c, "pawl_serve_connections_total", "counter", "Connections accepted") &&
		buf_printf(c->loop, &c->out, "pawl_serve_connections_total %" PRIu64 "\n",
			   load_relaxed(&sv->connections)) &&
		family(c, "pawl_serve_http_requests_total", "counter", "HTTP requests") &&
		buf_printf(c->loop, &c->out, "pawl_serve_http_requests_total %" PRIu64 "\n",
			   load_relaxed(&sv->requests)) &&
		family(c, "pawl_serve_http_answers_total", "counter", "HTTP answers sent") &&
		buf_printf(c->loop, &c->out, "pawl_serve_http_answers_total %" PRIu64 "\n",
			   load_relaxed(&sv->answers)) &&
		family(c, "pawl_serve_memory_bytes", "gauge", "Bodies and answers in memory") &&
		buf_printf(c->loop, &c->out, "pawl_serve_memory_bytes %" PRIu64 "\n",
			   load_relaxed(&sv->held)) &&
		family(c, "pawl_serve_log_dropped_total", "counter",
		       "Lines of the log that could not be written") &&
		buf_printf(c->loop, &c->out, "pawl_serve_log_dropped_total %" PRIu64 "\n",
			   log_dropped());
	n = ok ? pawl_prometheus(sv->e, ENGINES, NULL, 0) : -1;
	if (n >= 0 && buf_room(c->loop, &c->out, c->out.n + (size_t)n + 1024)) {
		n = pawl_prometheus(sv->e, ENGINES, c->out.p + c->out.n, (size_t)n + 1024);
		if (n >= 0 && c->out.n + (size_t)n < c->out.cap) {
			c->out.n += (size_t)n;
			out_end(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL);
			return;
		}
	}
	conn_error(c, 503, "out of memory");
}
