// SPDX-License-Identifier: Apache-2.0
/* The output of pawl infer for programs: one JSON object; pawl-infer(1) describes it. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <gnu/libc-version.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "infer.h"
#include "net.h"

#define JSON_SCHEMA	1

static json_t *hist_json(const struct hist *h)
{
	json_t *o = json_object();
	uint64_t ns;
	size_t q;

	json_object_set_new(o, "samples", json_integer((json_int_t)h->count));
	for (q = 0; q < NQUANTILES; q++)
		json_object_set_new(o, quantile_name[q], hist_quantile(h, quantile[q], &ns) ?
				    json_null() : json_integer((json_int_t)ns));
	json_object_set_new(o, "min", h->count ? json_integer((json_int_t)h->min) : json_null());
	json_object_set_new(o, "max", h->count ? json_integer((json_int_t)h->max) : json_null());
	return o;
}

/* The first line of a file, or null. */
static json_t *file_json(const char *path)
{
	FILE *f = fopen(path, "re");
	json_t *o = NULL;
	char line[128];

	if (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		o = json_string(line);
	}
	if (f)
		fclose(f);
	return o ? o : json_null();
}

static json_t *machine_json(const struct work *w)
{
	double load[3] = { 0 };
	struct utsname u;
	char cpu[128];
	json_t *o;

	cpu_model(cpu, sizeof(cpu));
	uname(&u);
	if (getloadavg(load, 3) < 0)
		load[0] = load[1] = load[2] = 0;
	o = json_pack("{s:s, s:s, s:i, s:s, s:s, s:[fff]}", "cpu", cpu, "arch", u.machine,
		      "cores", w->cpus, "kernel", u.release, "libc", gnu_get_libc_version(),
		      "load", load[0], load[1], load[2]);
	json_object_set_new(o, "governor",
		file_json("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
	json_object_set_new(o, "clocksource",
		file_json("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
	json_object_set_new(o, "gemm", json_string(net_gemm()));
	json_object_set_new(o, "compiler", json_string(
#ifdef __clang__
		"clang " __clang_version__
#else
		"gcc " __VERSION__
#endif
		));
#ifdef CONFIG_DEBUG_ENGINE
	json_object_set_new(o, "debug_engine", json_integer(CONFIG_DEBUG_ENGINE));
#endif
	return o;
}

static json_t *stats_json(const struct pawl_stats *s)
{
	const struct {
		const char *name;
		uint64_t v;
	} field[] = {
		{ "pushed", s->pushed }, { "completed", s->completed },
		{ "failed", s->failed }, { "skipped", s->skipped },
		{ "inlined", s->inlined }, { "helped", s->helped },
		{ "handed", s->handed }, { "stolen", s->stolen },
		{ "records", s->records }, { "helps", s->helps },
		{ "sleeps", s->sleeps }, { "wakes", s->wakes },
		{ "vars", s->vars }, { "ops", s->ops }, { "blocks", s->blocks },
		{ "bytes", s->bytes }, { "threads", s->threads },
	};
	json_t *o = json_object();
	size_t i;

	for (i = 0; i < sizeof(field) / sizeof(field[0]); i++)
		json_object_set_new(o, field[i].name, json_integer((json_int_t)field[i].v));
	return o;
}

static json_t *result_json(const struct work *w, const struct result *r)
{
	json_t *o = json_object();

	json_object_set_new(o, "engine", json_string(r->name));
	json_object_set_new(o, "workers", r->kind == PAWL_NAIVE ? json_null() :
			    json_integer(r->workers));
	json_object_set_new(o, "requests", json_integer((json_int_t)r->requests));
	json_object_set_new(o, "seconds", json_real((double)r->busy / NSEC));
	json_object_set_new(o, "requests_per_s", json_real(result_rate(r)));
	json_object_set_new(o, "images_per_s", json_real(result_rate(r) * w->opt.batch));
	json_object_set_new(o, "latency_ns", hist_json(&r->latency));
	json_object_set_new(o, "reloads", json_integer((json_int_t)r->reloads));
	json_object_set_new(o, "reload_ns", hist_json(&r->reload));
	if (w->opt.rate > 0) {
		json_object_set_new(o, "lateness_ns", hist_json(&r->lateness));
		json_object_set_new(o, "pushed_late", json_integer((json_int_t)r->late));
		json_object_set_new(o, "no_free_slot", json_integer((json_int_t)r->full));
		json_object_set_new(o, "never_pushed", json_integer((json_int_t)r->unpushed));
	}
	json_object_set_new(o, "answers_checked", json_integer((json_int_t)r->checked));
	json_object_set_new(o, "answers_wrong", json_integer((json_int_t)r->wrong));
	json_object_set_new(o, "versions_mixed", json_integer((json_int_t)r->mixed));
	json_object_set_new(o, "stats", stats_json(&r->stats));
	return o;
}

static json_t *options_json(const struct work *w)
{
	const struct options *p = &w->opt;
	json_t *o = json_object();

	json_object_set_new(o, "loop", json_string(p->rate > 0 ? "open" : "closed"));
	json_object_set_new(o, "latency_from",
			    json_string(p->rate > 0 ? "intended arrival" : "push"));
	json_object_set_new(o, "batch", json_integer(p->batch));
	json_object_set_new(o, "in_flight", json_integer(p->in_flight));
	json_object_set_new(o, "reload_every", json_integer((json_int_t)p->reload_every));
	json_object_set_new(o, "rate", p->rate > 0 ? json_real(p->rate) : json_null());
	json_object_set_new(o, "arrivals", p->rate > 0 ?
			    json_string(p->poisson ? "poisson" : "constant") : json_null());
	json_object_set_new(o, "requests", p->requests ?
			    json_integer((json_int_t)p->requests) : json_null());
	json_object_set_new(o, "duration", p->duration > 0 ? json_real(p->duration) : json_null());
	json_object_set_new(o, "seed", json_integer((json_int_t)p->seed));
	json_object_set_new(o, "quick", json_boolean(p->quick));
	/* A trace slows the run down, so a comparison needs to know. */
	json_object_set_new(o, "trace", p->trace ? json_string(p->trace) : json_null());
	return o;
}

static json_t *model_json(const struct work *w)
{
	static const char *const kind[] = {
		[LAYER_FC] = "fully connected",
		[LAYER_ACT] = "activation",
		[LAYER_SOFTMAX] = "softmax",
	};
	json_t *layers = json_array(), *o;
	int k;

	for (k = 0; k < w->shape->nlayers; k++) {
		const struct layer *l = &w->shape->layers[k];

		o = json_pack("{s:s?, s:s, s:i, s:i}", "name", l->name, "kind", kind[l->kind],
			      "in", l->in_dim, "out", l->out_dim);
		/* A name that is not UTF-8 cannot be packed. */
		json_array_append_new(layers, o ? o : json_null());
	}
	o = json_object();
	json_object_set_new(o, "a", json_string(w->path[0]));
	json_object_set_new(o, "b", json_string(w->path[1]));
	json_object_set_new(o, "weights", json_integer((json_int_t)w->nweights));
	json_object_set_new(o, "layers", layers);
	return o;
}

static json_t *images_json(const struct work *w)
{
	json_t *o = json_object();

	json_object_set_new(o, "file", json_string(w->images_path));
	json_object_set_new(o, "count", json_integer(w->images->count));
	json_object_set_new(o, "held_out", json_integer(w->images->held_out));
	return o;
}

static json_t *accuracy_json(const struct work *w)
{
	json_t *list = json_array();
	int v;

	for (v = 0; v < 2; v++) {
		struct accuracy a = accuracy_of(w, v);

		json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}",
			"model", v ? "b" : "a", "requests", (json_int_t)w->answers[v],
			"seen", (json_int_t)a.seen, "right", (json_int_t)a.right,
			"held_out_seen", (json_int_t)a.held_seen,
			"held_out_right", (json_int_t)a.held_right));
	}
	return list;
}

static json_t *results_json(const struct work *w, const struct result *results, int n)
{
	json_t *list = json_array();
	int i;

	for (i = 0; i < n; i++)
		json_array_append_new(list, result_json(w, &results[i]));
	return list;
}

static json_t *warnings_json(const struct work *w)
{
	json_t *list = json_array();
	unsigned int i;

	for (i = 0; i < w->nwarnings; i++)
		json_array_append_new(list, json_string(w->warning[i]));
	return list;
}

int report_json(const struct work *w, const struct result *results, int n, bool verified)
{
	double ratio = ratio_to_naive(w, results, n);
	json_t *o = json_object();
	int rc;

	json_object_set_new(o, "schema_version", json_integer(JSON_SCHEMA));
	json_object_set_new(o, "tool", json_string(self));
	json_object_set_new(o, "version", json_string(pawl_version()));
	json_object_set_new(o, "machine", machine_json(w));
	json_object_set_new(o, "options", options_json(w));
	json_object_set_new(o, "model", model_json(w));
	json_object_set_new(o, "images", images_json(w));
	json_object_set_new(o, "accuracy", accuracy_json(w));
	json_object_set_new(o, "runs", results_json(w, results, n));
	json_object_set_new(o, "ratio_to_naive", ratio > 0 ? json_real(ratio) : json_null());
	json_object_set_new(o, "rounds", json_integer(w->rounds));
	json_object_set_new(o, "others_cpu_share",
			    w->others >= 0 ? json_real(w->others) : json_null());
	json_object_set_new(o, "verified", json_boolean(verified));
	json_object_set_new(o, "warnings", warnings_json(w));
	rc = json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(o);
	return rc ? failed("--json", "cannot write") : 0;
}
