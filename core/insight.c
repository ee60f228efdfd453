// SPDX-License-Identifier: Apache-2.0
/*
 * Statistics for a monitor: those of one queue, and all of them as text for Prometheus.
 *
 * Progress: wait-free.  The calling thread only reads, and delays no other thread.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <core/device.h>
#include <core/insight.h>
#include <core/sizes.h>

int pawl_queue_stats(struct pawl_engine *e, struct pawl_device device, unsigned int prop,
		     struct pawl_queue_stats *out)
{
	struct pawl_queue_stats s = { .size = sizeof(s) };
	struct exec_queue_stats xs;
	u32 i, dev = op_device(e, device);
	int rc = size_check_out("queue_stats: out", out, QUEUE_STATS_SIZE_0);

	if (rc)
		return rc;
	if (device.kind == PAWL_CPU ? device.id >= e->ndev : !dev)
		return err(-ENODEV, "queue_stats: no device of kind %u, number %u in this engine",
			   device.kind, device.id);
	if (prop > PAWL_NO_SKIP)
		return err(-EINVAL, "queue_stats: prop is %u, the largest is %u", prop, PAWL_NO_SKIP);
	BUILD_BUG_ON(ARRAY_SIZE(xs.wait) != PAWL_WAIT_BUCKETS);
	exec_queue_stats(e->routes[dev * 8u + prop], &xs);
	s.name = xs.name;
	s.number = xs.number;
	s.workers = xs.workers;
	s.depth = xs.depth;
	s.pushed = xs.pushed;
	s.taken = xs.pushed - xs.depth;
	s.wait_ns = xs.wait_ns;
	for (i = 0; i < PAWL_WAIT_BUCKETS; i++) {
		s.wait[i] = xs.wait[i];
		s.waits += xs.wait[i];
	}
	size_copy_out(out, &s, sizeof(s));
	return 0;
}
PAWL_EXPORT(pawl_queue_stats);

void text_add(struct text *t, const char *fmt, ...)
{
	size_t at = t->len < t->size ? t->len : t->size;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->size ? t->buf + at : NULL, t->size - at, fmt, ap);
	va_end(ap);
	t->len += n > 0 ? (size_t)n : 0;
}

enum family_type { COUNTER, GAUGE, HISTOGRAM };

static const char *const type_name[] = { "counter", "gauge", "histogram" };

/* A family of one number per engine: a field of struct pawl_stats. */
struct family {
	const char *name, *help;
	enum family_type type;
	size_t at;
	bool narrow;		/* the field is an unsigned int */
};

#define FIELD(f) offsetof(struct pawl_stats, f)

static const struct family of_engine[] = {
	/* Completed is read before pushed, so that it is never greater. */
	{ "pawl_ops_completed_total", "Ops that are complete.", COUNTER, FIELD(completed), false },
	{ "pawl_ops_pushed_total", "Ops that were pushed.", COUNTER, FIELD(pushed), false },
	{ "pawl_ops_failed_total", "Ops whose own body failed.", COUNTER, FIELD(failed), false },
	{ "pawl_ops_skipped_total", "Ops skipped because of an error of their vars.", COUNTER,
	  FIELD(skipped), false },
	{ "pawl_ops_inlined_total", "Ops that ran inside their push.", COUNTER, FIELD(inlined), false },
	{ "pawl_ops_helped_total", "Ops run by waiting or pushing threads.", COUNTER,
	  FIELD(helped), false },
	{ "pawl_ops_handed_total", "Ops run at once by the thread that made them ready.", COUNTER,
	  FIELD(handed), false },
	{ "pawl_ops_stolen_total", "Ops taken from another thread's ready list.", COUNTER,
	  FIELD(stolen), false },
	{ "pawl_push_records_total", "Pushes that met an unfinished push.", COUNTER,
	  FIELD(records), false },
	{ "pawl_push_helps_total", "Unfinished pushes that another thread finished.", COUNTER,
	  FIELD(helps), false },
	{ "pawl_thread_sleeps_total", "Times that an idle thread slept.", COUNTER,
	  FIELD(sleeps), false },
	{ "pawl_thread_wakes_total", "Calls that woke a sleeping thread.", COUNTER,
	  FIELD(wakes), false },
	{ "pawl_memory_bytes", "Committed memory of objects and run queues.", GAUGE,
	  FIELD(bytes), false },
	{ "pawl_address_space_bytes", "Addresses of objects.", GAUGE, FIELD(address_space), false },
	{ "pawl_completions_unreaped", "Completions that wait for a reap.", GAUGE, FIELD(unreaped),
	  false },
	{ "pawl_threads", "Thread slots that were ever used.", GAUGE, FIELD(threads), true },
	{ "pawl_workers", "Workers that exist.", GAUGE, FIELD(workers), true },
};

static void family_begin(struct text *t, const char *name, const char *help,
			 enum family_type type)
{
	text_add(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type_name[type]);
}

/* Add the labels of a sample of e.  In config.name, '_' replaces what a label must not contain. */
static void labels(struct text *t, const struct pawl_engine *e, const char *queue)
{
	const char *p = exec_name(e->x);

	text_add(t, "{engine=\"%llu\",name=\"", (unsigned long long)e->id);
	for (; *p; p++)
		text_add(t, "%c", *p < 0x20 || *p > 0x7e || *p == '"' || *p == '\\' ? '_' : *p);
	text_add(t, queue ? "\",queue=\"%s\"" : "\"", queue);
}

static u64 in_flight(const struct pawl_stats *s)
{
	return s->pushed - s->completed;
}

static void engine_families(struct text *t, struct pawl_engine *const *engines, unsigned int n)
{
	struct pawl_stats s = { .size = sizeof(s) };
	const struct family *f;
	unsigned int v;
	u64 value;

	family_begin(t, "pawl_ops_in_flight", "Ops that are pushed and not complete.", GAUGE);
	for (v = 0; v < n; v++) {
		pawl_stats(engines[v], &s);
		text_add(t, "pawl_ops_in_flight");
		labels(t, engines[v], NULL);
		text_add(t, "} %llu\n", (unsigned long long)in_flight(&s));
	}
	for (f = of_engine; f < of_engine + ARRAY_SIZE(of_engine); f++) {
		family_begin(t, f->name, f->help, f->type);
		for (v = 0; v < n; v++) {
			const char *field = (const char *)&s + f->at;

			pawl_stats(engines[v], &s);
			value = f->narrow ? *(const unsigned int *)(const void *)field :
				*(const u64 *)(const void *)field;
			text_add(t, "%s", f->name);
			labels(t, engines[v], NULL);
			text_add(t, "} %llu\n", (unsigned long long)value);
		}
	}
}

/* Add a time in seconds.  The decimal point is a '.' in every locale. */
static void text_ns(struct text *t, u64 ns)
{
	text_add(t, "%llu.%09llu", (unsigned long long)(ns / 1000000000),
	    (unsigned long long)(ns % 1000000000));
}

/* Buckets of 2^8 ns, 2^10 ns and so on: 256 ns to 69 s. */
#define LE_FIRST 8u
#define LE_LAST 36u

static void waits_family(struct text *t, struct pawl_engine *e,
			 const struct exec_queue_stats *s)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < PAWL_WAIT_BUCKETS; i++) {
		sum += s->wait[i];
		if (i < LE_FIRST || i > LE_LAST || i % 2)
			continue;
		text_add(t, "pawl_queue_wait_seconds_bucket");
		labels(t, e, s->name);
		text_add(t, ",le=\"");
		text_ns(t, 1ull << i);
		text_add(t, "\"} %llu\n", (unsigned long long)sum);
	}
	text_add(t, "pawl_queue_wait_seconds_bucket");
	labels(t, e, s->name);
	text_add(t, ",le=\"+Inf\"} %llu\npawl_queue_wait_seconds_sum", (unsigned long long)sum);
	labels(t, e, s->name);
	text_add(t, "} ");
	text_ns(t, s->wait_ns);
	text_add(t, "\npawl_queue_wait_seconds_count");
	labels(t, e, s->name);
	text_add(t, "} %llu\n", (unsigned long long)sum);
}

static void queue_families(struct text *t, struct pawl_engine *const *engines, unsigned int n)
{
	static const struct { const char *name, *help; enum family_type type; } f[] = {
		{ "pawl_queue_depth", "Ready ops that no thread has taken.", GAUGE },
		{ "pawl_queue_pushed_total", "Ops put into the queue.", COUNTER },
		{ "pawl_queue_workers", "Workers of the queue that exist.", GAUGE },
		{ "pawl_queue_wait_seconds", "Time in the queue, from samples.", HISTOGRAM },
	};
	struct exec_queue_stats s;
	struct exec_queue *q;
	unsigned int v;
	u32 k, i;

	for (k = 0; k < ARRAY_SIZE(f); k++) {
		family_begin(t, f[k].name, f[k].help, f[k].type);
		for (v = 0; v < n; v++) {
			for (i = 0; (q = exec_queue_at(engines[v]->x, i)); i++) {
				exec_queue_stats(q, &s);
				if (f[k].type == HISTOGRAM) {
					waits_family(t, engines[v], &s);
					continue;
				}
				text_add(t, "%s", f[k].name);
				labels(t, engines[v], s.name);
				text_add(t, "} %llu\n", (unsigned long long)
				    (k == 0 ? s.depth : k == 1 ? s.pushed : s.workers));
			}
		}
	}
}

int pawl_prometheus(struct pawl_engine *const *engines, unsigned int n, char *buf, size_t size)
{
	struct text t = { buf, size, 0 };
	unsigned int i;

	if (!engines || !n)
		return err(-EINVAL, "prometheus: %s", n ? "engines is NULL" : "no engine is given");
	for (i = 0; i < n; i++)
		if (!engines[i])
			return err(-EINVAL, "prometheus: engines[%u] is NULL", i);
	if (!buf && size)
		return err(-EINVAL, "prometheus: buf is NULL, its size is %zu", size);
	engine_families(&t, engines, n);
	queue_families(&t, engines, n);
	return t.len <= INT_MAX ? (int)t.len : err(-E2BIG, "prometheus: the text has %zu bytes", t.len);
}
PAWL_EXPORT(pawl_prometheus);
