// SPDX-License-Identifier: Apache-2.0
/*
 * core/insight.c: pawl_prometheus() writes what a strict reader of the exposition format accepts.
 */
#include "util.h"
#include <ctype.h>
#include <core/engine.h>
#include <core/thread.h>
#include <exec/internal.h>

/* --- a strict reader --- */

#define MOST 4096

struct sample {
	char name[64], labels[128], le[32];
	double value;
};

static struct {
	char family[64], type[16];
	struct sample s[MOST];
	int n, families;
	char seen[64][64];
} in;

static const char *word(const char *p, char *to, size_t size, const char *extra)
{
	size_t n = 0;

	while (isalnum((unsigned char)*p) || *p == '_' || (*p && strchr(extra, *p))) {
		ck_assert_uint_lt(n, size - 1);
		to[n++] = *p++;
	}
	to[n] = 0;
	ck_assert_msg(n && !isdigit((unsigned char)to[0]), "no name at: %.40s", p);
	return p;
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with);
}

static void comment(const char *p)
{
	bool help = !strncmp(p, "# HELP ", 7);
	char name[64];
	int i;

	ck_assert_msg(help || !strncmp(p, "# TYPE ", 7), "%.60s", p);
	p = word(p + 7, name, sizeof(name), ":");
	ck_assert_int_eq(*p++, ' ');
	if (help) {
		for (i = 0; i < in.families; i++)
			ck_assert_str_ne(in.seen[i], name);
		ck_assert_int_lt(in.families, 64);
		strcpy(in.seen[in.families++], name);
		strcpy(in.family, name);
		in.type[0] = 0;
		ck_assert(*p && *p != '\n');
		return;
	}
	ck_assert_str_eq(name, in.family);
	ck_assert_int_eq(in.type[0], 0);
	p = word(p, in.type, sizeof(in.type), "");
	ck_assert_int_eq(*p, '\n');
	ck_assert(!strcmp(in.type, "counter") || !strcmp(in.type, "gauge") ||
		  !strcmp(in.type, "histogram"));
	ck_assert_msg(!strcmp(in.type, "counter") == ends(name, "_total"), "%s %s", in.type, name);
	ck_assert(!strcmp(in.type, "histogram") == ends(name, "_seconds"));
}

static void sample(const char *p)
{
	struct sample *s = &in.s[in.n++];
	char rest[64], label[64], value[64], *end;
	size_t n;

	ck_assert_int_lt(in.n, MOST);
	memset(s, 0, sizeof(*s));
	p = word(p, s->name, sizeof(s->name), ":");
	ck_assert_msg(!strncmp(s->name, in.family, strlen(in.family)), "%s in %s", s->name, in.family);
	strcpy(rest, s->name + strlen(in.family));
	ck_assert_int_ne(in.type[0], 0);
	if (!strcmp(in.type, "histogram"))
		ck_assert(!strcmp(rest, "_bucket") || !strcmp(rest, "_sum") || !strcmp(rest, "_count"));
	else
		ck_assert_str_eq(rest, "");
	ck_assert_int_eq(*p, '{');
	do {
		p = word(p + 1, label, sizeof(label), "");
		ck_assert_int_eq(p[0], '=');
		ck_assert_int_eq(p[1], '"');
		p += 2;
		for (n = 0; *p != '"'; p++) {
			ck_assert(*p >= 0x20 && *p <= 0x7e && *p != '\\' && n < sizeof(value) - 1);
			value[n++] = *p;
		}
		value[n] = 0;
		p++;
		if (!strcmp(label, "le")) {
			strcpy(s->le, value);
			continue;
		}
		ck_assert_uint_lt(strlen(s->labels) + strlen(label) + n + 3, sizeof(s->labels));
		strcat(strcat(strcat(strcat(s->labels, label), "="), value), ",");
	} while (*p == ',');
	ck_assert_int_eq(p[0], '}');
	ck_assert_int_eq(p[1], ' ');
	ck_assert(isdigit((unsigned char)p[2]));
	s->value = strtod(p + 2, &end);
	ck_assert_msg(*end == '\n', "after the value: %.40s", end);
}

/* Buckets in order, none below the one before, the last as _count; no sample twice. */
static void histograms(void)
{
	double last = -1, le = -1, now;
	int i, k;

	for (i = 0; i < in.n; i++) {
		struct sample *s = &in.s[i];

		for (k = 0; k < i; k++)
			ck_assert(strcmp(in.s[k].name, s->name) || strcmp(in.s[k].labels, s->labels) ||
				  strcmp(in.s[k].le, s->le));
		if (ends(s->name, "_bucket")) {
			now = strcmp(s->le, "+Inf") ? strtod(s->le, NULL) : 1e300;
			ck_assert(now > le && s->value >= last);
			le = now;
			last = s->value;
		} else if (ends(s->name, "_count")) {
			ck_assert(le == 1e300 && last == s->value);
			last = le = -1;
		}
	}
}

static void parse(const char *text)
{
	const char *p = text, *next;

	memset(&in, 0, sizeof(in));
	for (; *p; p = next + 1) {
		next = strchr(p, '\n');
		ck_assert_ptr_nonnull(next);
		if (*p == '#')
			comment(p);
		else
			sample(p);
	}
	histograms();
}

static double value(const char *name, const char *part)
{
	int i;

	for (i = 0; i < in.n; i++)
		if (!strcmp(in.s[i].name, name) && strstr(in.s[i].labels, part) && !in.s[i].le[0])
			return in.s[i].value;
	ck_abort_msg("no %s with %s", name, part);
	return -1;
}

/* The value of the queue's bucket up to le. */
static u32 bucket(const char *queue, const char *le)
{
	int i;

	for (i = 0; i < in.n; i++)
		if (strstr(in.s[i].labels, queue) && !strcmp(in.s[i].le, le))
			return (u32)in.s[i].value;
	ck_abort_msg("no bucket %s of %s", le, queue);
	return 0;
}

static u32 buckets(const char *queue)
{
	u32 n = 0;
	int i;

	for (i = 0; i < in.n; i++)
		n += in.s[i].le[0] && strstr(in.s[i].labels, queue);
	return n;
}

/* --- tests --- */

static char text[1 << 16];

static void scrape(struct pawl_engine *const *e, unsigned int n)
{
	int len = pawl_prometheus(e, n, text, sizeof(text));

	ck_assert_int_gt(len, 0);
	ck_assert_uint_lt((unsigned int)len, sizeof(text));
	ck_assert_uint_eq(strlen(text), (unsigned int)len);
	parse(text);
	/* In this order the former is never greater than the latter. */
	ck_assert(strstr(text, "# TYPE pawl_ops_completed_total ") <
		  strstr(text, "# TYPE pawl_ops_pushed_total "));
}

START_TEST(test_values)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int i;

	for (i = 0; i < 10; i++)
		OK(push_write(e, nothing, NULL, var_new(e)));
	OK(push_write(e, fail_io, NULL, var_new(e)));
	scrape(&e, 1);
	ck_assert(value("pawl_ops_pushed_total", "engine=") == 11);
	ck_assert(value("pawl_ops_completed_total", "name=pawl") == 0);
	ck_assert(value("pawl_ops_in_flight", "engine=") == 11);
	ck_assert(value("pawl_queue_depth", "queue=c0,") == 11);
	ck_assert(value("pawl_queue_depth", "queue=prio,") == 0);
	ck_assert(value("pawl_workers", "engine=") == 0);
	nap_us(2000);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	scrape(&e, 1);
	ck_assert(value("pawl_ops_completed_total", "engine=") == 11);
	ck_assert(value("pawl_ops_in_flight", "engine=") == 0);
	ck_assert(value("pawl_ops_failed_total", "engine=") == 1);
	ck_assert(value("pawl_queue_depth", "queue=c0,") == 0);
	ck_assert(value("pawl_queue_pushed_total", "queue=c0,") == 11);
	ck_assert(value("pawl_queue_wait_seconds_count", "queue=c0,") == 1);
	ck_assert(value("pawl_queue_wait_seconds_sum", "queue=c0,") > 0.0015);
	ck_assert(value("pawl_queue_wait_seconds_count", "queue=prio,") == 0);
	ck_assert(value("pawl_memory_bytes", "engine=") > 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The buckets of the queue's statistics as they are, and in +Inf also those above the last. */
START_TEST(test_every_waiting_time_is_in_a_bucket)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct waits *w = &exec_queue_at(e->x, 0)->waits[0];
	char le[64];
	u32 i, k;

	for (i = 0; i < WAIT_BUCKETS; i++)
		store_relaxed(&w->bucket[i], i + 1);
	store_relaxed(&w->sum, 123456789012ull);
	scrape(&e, 1);
	ck_assert(value("pawl_queue_wait_seconds_count", "queue=c0,") == 40 * 41 / 2);
	ck_assert(value("pawl_queue_wait_seconds_sum", "queue=c0,") == 123.456789012);
	for (i = 8, k = 0; i <= 36; i += 2, k++) {
		snprintf(le, sizeof(le), "%llu.%09llu", (1ull << i) / 1000000000,
			 (1ull << i) % 1000000000);
		ck_assert_uint_eq(bucket("queue=c0,", le), (i + 1) * (i + 2) / 2);
	}
	ck_assert_uint_eq(bucket("queue=c0,", "+Inf"), 40 * 41 / 2);
	ck_assert_uint_eq(k + 1, buckets("queue=c0,"));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Each family of the engine is the field of its name, of which no two are the same here. */
START_TEST(test_every_family_is_its_field)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct thread *t = thread_get(e);
	u64 *const count[] = { &t->failed, &t->skipped, &t->inlined, &t->records, &t->helps,
			       &t->ex.helped, &t->ex.handed, &t->ex.stolen, &t->ex.sleeps,
			       &e->x->wakes };
	pawl_var_t v[700];
	struct pawl_op op = op_of_fn(nothing, NULL);
	struct pawl_stats s;
	struct gate g;
	u32 i;

	/* A number of vars, ops and blocks each. */
	for (i = 0; i < COUNT(v); i++)
		v[i] = var_new(e);
	gate_write(e, &g, v[0]);
	op.writes = v;
	op.nwrites = 9;
	for (i = 0; i < 300; i++)
		OK(pawl_push(e, &op));
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	s = stats(e);
	ck_assert_uint_eq(s.vars, pool_carved(e->pool[POOL_VAR]));
	ck_assert_uint_eq(s.ops, pool_carved(e->pool[POOL_OP]));
	ck_assert_uint_eq(s.blocks, pool_carved(e->pool[POOL_BLOCK]));
	ck_assert(s.vars != s.ops && s.ops != s.blocks && s.vars != s.blocks);
	for (i = 0; i < ARRAY_SIZE(count); i++)
		store_relaxed(count[i], 1000 + i);
	s = stats(e);
	scrape(&e, 1);
	ck_assert(value("pawl_ops_failed_total", "") == 1000 && s.failed == 1000);
	ck_assert(value("pawl_ops_skipped_total", "") == 1001 && s.skipped == 1001);
	ck_assert(value("pawl_ops_inlined_total", "") == 1002 && s.inlined == 1002);
	ck_assert(value("pawl_push_records_total", "") == 1003 && s.records == 1003);
	ck_assert(value("pawl_push_helps_total", "") == 1004 && s.helps == 1004);
	ck_assert(value("pawl_ops_helped_total", "") == 1005 && s.helped == 1005);
	ck_assert(value("pawl_ops_handed_total", "") == 1006 && s.handed == 1006);
	ck_assert(value("pawl_ops_stolen_total", "") == 1007 && s.stolen == 1007);
	ck_assert(value("pawl_thread_sleeps_total", "") == 1008 && s.sleeps == 1008);
	ck_assert(value("pawl_thread_wakes_total", "") == 1009 && s.wakes == 1009);
	ck_assert(value("pawl_memory_bytes", "") == (double)s.bytes);
	ck_assert(value("pawl_address_space_bytes", "") == (double)s.address_space);
	ck_assert_uint_gt(s.address_space, s.bytes);
	ck_assert(value("pawl_threads", "") == 1);
	ck_assert(value("pawl_workers", "") == 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_workers_of_queues)
{
	struct pawl_queue_stats s = { .size = sizeof(s) };
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	struct pawl_engine *e;

	c.priority_workers = 3;
	c.start_workers = true;
	e = engine_with(&c);
	scrape(&e, 1);
	ck_assert(value("pawl_queue_workers", "queue=c0,") == 2);
	ck_assert(value("pawl_queue_workers", "queue=prio,") == 3);
	ck_assert(value("pawl_workers", "") == stats(e).workers && stats(e).workers >= 5);
	ck_assert(value("pawl_threads", "") == stats(e).threads);
	OK(pawl_queue_stats(e, (struct pawl_device){ PAWL_CPU, 0 }, PAWL_CPU_PRIORITIZED, &s));
	ck_assert_uint_eq(s.workers, 3);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Each family occurs once, and the labels distinguish the engines. */
START_TEST(test_several_engines)
{
	struct pawl_config c = small(PAWL_POOLED, 1);
	struct pawl_engine *e[3];
	struct pawl_stats s;
	char engine_label[32];
	int i, k;

	c.name = "\"\\\n\xc3 ~\x7f";
	e[0] = engine(PAWL_PER_DEVICE, 0);
	e[1] = engine_with(&c);
	e[2] = engine(PAWL_NAIVE, 0);
	OK(push_write(e[1], nothing, NULL, var_new(e[1])));
	OK(pawl_wait_all(e[1], SOON_NS, NULL));
	scrape(e, 3);
	ck_assert(value("pawl_ops_pushed_total", "name=____ ~_,") >= 1);
	ck_assert(value("pawl_queue_pushed_total", "name=____ ~_,queue=io,") == 0);
	/* Each with its own numbers. */
	for (i = 0; i < 5; i++)
		OK(push_write(e[0], nothing, NULL, var_new(e[0])));
	for (i = 0; i < 2; i++)
		OK(push_write(e[2], nothing, NULL, var_new(e[2])));
	scrape(e, 3);
	for (k = 0; k < 3; k++) {
		s = stats(e[k]);
		snprintf(engine_label, sizeof(engine_label), "engine=%llu,",
			 (unsigned long long)e[k]->id);
		ck_assert(value("pawl_ops_in_flight", engine_label) == (k ? 0 : 5));
		ck_assert(value("pawl_ops_pushed_total", engine_label) == (double)s.pushed);
		ck_assert(value("pawl_ops_completed_total", engine_label) == (double)s.completed);
		ck_assert(value("pawl_workers", engine_label) == (k == 1));
		ck_assert(value("pawl_queue_depth", engine_label) == (k ? 0 : 5));
		ck_assert(value("pawl_queue_workers", engine_label) == (k == 1));
	}
	OK(pawl_wait_all(e[0], SOON_NS, NULL));
	OK(pawl_engine_destroy(e[0]));
	OK(pawl_engine_destroy(e[1]));
	OK(pawl_engine_destroy(e[2]));
}
END_TEST

/* As snprintf(): the length without a buffer, and no byte beyond one that is too short. */
START_TEST(test_short_buffers)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int all = pawl_prometheus(&e, 1, NULL, 0), n;
	char whole[1 << 15], part[1 << 15];

	ck_assert_int_gt(all, 0);
	ck_assert_int_lt(all, (int)sizeof(whole));
	ck_assert_int_eq(pawl_prometheus(&e, 1, whole, sizeof(whole)), all);
	for (n = 1; n <= all + 1; n += n < all - 100 ? 37 : 1) {
		memset(part, 'x', sizeof(part));
		ck_assert_int_eq(pawl_prometheus(&e, 1, part, (size_t)n), all);
		ck_assert_int_eq(part[n - 1], 0);
		ck_assert_int_eq(part[n], 'x');
		ck_assert(!memcmp(part, whole, (size_t)n - 1));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_bad)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *none = NULL;
	struct pawl_engine *const second[] = { e, NULL };

	FAILS(pawl_prometheus(NULL, 1, text, sizeof(text)), -EINVAL, "prometheus", "NULL");
	FAILS(pawl_prometheus(&e, 0, text, sizeof(text)), -EINVAL, "prometheus", "no engine");
	FAILS(pawl_prometheus(&none, 1, text, sizeof(text)), -EINVAL, "engines[0]");
	FAILS(pawl_prometheus(second, 2, text, sizeof(text)), -EINVAL, "engines[1]");
	FAILS(pawl_prometheus(&e, 1, NULL, 5), -EINVAL, "buf", "5");
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *pusher(void *arg)
{
	pawl_var_t v = var_new(arg);
	int i;

	for (i = 0; i < TIMES(20000); i++)
		MUST(!push_write(arg, nothing, NULL, v));
	return NULL;
}

START_TEST(test_while_it_moves)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	double pushed = 0, waits = 0;
	pthread_t t = spawn(pusher, e);

	do {
		scrape(&e, 1);
		ck_assert(value("pawl_ops_pushed_total", "engine=") >= pushed);
		ck_assert(value("pawl_queue_wait_seconds_count", "queue=c0,") >= waits);
		pushed = value("pawl_ops_pushed_total", "engine=");
		waits = value("pawl_queue_wait_seconds_count", "queue=c0,");
		ck_assert(value("pawl_ops_completed_total", "engine=") <= pushed);
	} while (stats(e).completed < (uint64_t)TIMES(20000));
	join(t);
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("prometheus", test_values, test_every_waiting_time_is_in_a_bucket,
      test_every_family_is_its_field, test_workers_of_queues, test_several_engines,
      test_short_buffers, test_bad, test_while_it_moves)
