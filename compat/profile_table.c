// SPDX-License-Identifier: Apache-2.0
/*
 * The profiler's sums per name, and the table of them.
 *
 * Structures: a hash table of names that only grows (names are interned, so pointers are
 * compared).  Its numbers are separate counters, so a table printed while ops run may be
 * inconsistent by those ops.  A name contains its domain (compat/profile.h).
 *
 * Ordering: COMPAT-T1 (name stored, release) <-> COMPAT-T2 (table read, acquire): its text.
 *
 * Progress: lock-free for ops; a lock serializes threads that print.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <compat/profile.h>
#include <pawl/mx_c_api.h>

#define ENTRIES		4096u

struct entry {
	const char *key;	/* A: interned */
	u32 kind;		/* A: enum mx_stat_kind */
	u64 count, total, min, max;	/* A: of a duration, ns */
};

static struct entry entries[ENTRIES];

static struct entry *entry_of(const char *key)
{
	u32 i = (u32)(((u64)(uintptr_t)key * 0x9e3779b97f4a7c15ull) >> 52), n;

	for (n = 0; n < ENTRIES; n++, i = (i + 1) % ENTRIES) {
		/* Relaxed: only the address is compared. */
		const char *was = load_relaxed(&entries[i].key);

		/* COMPAT-T1 <-> COMPAT-T2 */
		if (!was && cas_release_relaxed(&entries[i].key, &was, key))
			return &entries[i];
		if (was == key)
			return &entries[i];
	}
	return NULL;
}

/* min is stored plus 1, since 0 means that there is no value yet. */
static void keep_least(u64 *to, u64 v)
{
	u64 was = load_relaxed(to);

	while ((!was || v + 1 < was) && !cas_relaxed(to, &was, v + 1))
		;
}

static void keep_most(u64 *to, u64 v)
{
	u64 was = load_relaxed(to);

	while (v > was && !cas_relaxed(to, &was, v))
		;
}

void mx_stat_add(const char *key, enum mx_stat_kind kind, u64 value)
{
	struct entry *x = entry_of(key);

	if (!x)
		return;
	store_relaxed(&x->kind, (u32)kind);
	fetch_add_relaxed(&x->count, 1);
	/* The sum of a counter is its last value. */
	if (kind == MX_STAT_COUNTER)
		store_relaxed(&x->total, value);
	else
		fetch_add_relaxed(&x->total, value);
	keep_least(&x->min, value);
	keep_most(&x->max, value);
}

/* --- the table --- */

struct text {
	char *s;
	size_t n, cap;
	bool cut;		/* there was no memory for a part of it */
};

static __thread struct text *printed;
static pthread_key_t printed_key;
static pthread_once_t printed_once = PTHREAD_ONCE_INIT;
static bool have_printed_key;

static void printed_free(void *arg)
{
	struct text *t = arg;

	free(t->s);
	free(t);
	printed = NULL;
}

static void printed_key_make(void)
{
	have_printed_key = !pthread_key_create(&printed_key, printed_free);
}

/* The calling thread's buffer, kept until its next print. */
static struct text *text_new(void)
{
	pthread_once(&printed_once, printed_key_make);
	if (!printed && have_printed_key) {
		printed = calloc(1, sizeof(*printed));
		if (printed && pthread_setspecific(printed_key, printed))
			printed_free(printed);
	}
	if (printed) {
		printed->n = 0;
		printed->cut = false;
	}
	return printed;
}

static __printf(2, 3) void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	for (;;) {
		va_start(ap, fmt);
		n = vsnprintf(t->s ? t->s + t->n : NULL, t->cap - t->n, fmt, ap);
		va_end(ap);
		if (n >= 0 && t->n + (size_t)n < t->cap)
			break;
		char *s = n < 0 ? NULL : realloc(t->s, 2 * (t->n + (size_t)n) + 1024);

		if (!s) {
			t->cut = true;
			return;
		}
		t->s = s;
		t->cap = 2 * (t->n + (size_t)n) + 1024;
	}
	t->n += (size_t)n;
}

struct row {
	char domain[128];
	const char *name;
	enum mx_stat_kind kind;
	u64 count, total, min, max;
};

static int sort_column, sort_up;	/* W(mx_profile_lock) */

/* In ms, or in thousands of a counter's unit. */
static double scaled(const struct row *r, double v)
{
	return v / (r->kind == MX_STAT_COUNTER ? 1e3 : 1e6);
}

static double average(const struct row *r)
{
	if (r->kind == MX_STAT_COUNTER)
		return (double)((r->max - r->min) / 2);
	return (double)r->total / (double)r->count;
}

static double column(const struct row *r)
{
	const double all[] = { (double)r->total, average(r), (double)r->min, (double)r->max,
			       (double)r->count };

	return all[sort_column];
}

/* By domain first: each has its own table. */
static int by_column(const void *a, const void *b)
{
	int domain = strcmp(((const struct row *)a)->domain, ((const struct row *)b)->domain);
	double x = column(a), y = column(b);
	int way = x < y ? -1 : x > y;

	return domain ? domain : sort_up ? way : -way;
}

static void row_name(struct row *r, const char *key)
{
	const char *sep = strchr(key, MX_STAT_SEP);

	r->name = sep ? sep + 1 : key;
	snprintf(r->domain, sizeof(r->domain), "%.*s", sep ? (int)(sep - key) : 8,
		 sep ? key : "operator");
}

static u32 rows_take(struct row *rows, bool reset)
{
	u32 i, n = 0;

	for (i = 0; i < ENTRIES; i++) {
		struct entry *x = &entries[i];
		const char *key = load_acquire(&x->key);	/* COMPAT-T2 <-> COMPAT-T1 */
		struct row *r = &rows[n];

		r->count = load_relaxed(&x->count);
		r->kind = load_relaxed(&x->kind);
		r->total = load_relaxed(&x->total);
		r->min = load_relaxed(&x->min);
		r->min -= !!r->min;
		r->max = load_relaxed(&x->max);
		if (!key || !r->count)
			continue;
		row_name(r, key);
		n++;
		if (!reset)
			continue;
		store_relaxed(&x->count, 0);
		store_relaxed(&x->total, 0);
		store_relaxed(&x->min, 0);
		store_relaxed(&x->max, 0);
	}
	return n;
}

static void print_table(struct text *t, const struct row *rows, u32 n)
{
	static const char rule[] = "-------------";
	u32 i;

	add(t, "\nProfile Statistics:\n\tNote the difference in units for different entries.\n");
	for (i = 0; i < n; i++) {
		const struct row *r = &rows[i];

		if (!i || strcmp(r[-1].domain, r->domain)) {
			add(t, "%s%s\n=================\n", i ? "\n" : "", r->domain);
			add(t, "%-25s%16s %16s %16s %16s %16s\n", "Name", "Total Count",
			    "Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)");
			add(t, "%-25s%16s %16s %16s %16s %16s\n", "----", "-----------",
			    "---------", rule, rule, rule);
		}
		if (r->kind != MX_STAT_MARKER)
			add(t, "%-25s%16llu %16.4f %16.4f %16.4f %16.4f\n", r->name,
			    (unsigned long long)r->count, scaled(r, (double)r->total),
			    scaled(r, (double)r->min), scaled(r, (double)r->max),
			    scaled(r, average(r)));
	}
	add(t, "\n");
}

static void json_text(struct text *t, const char *s)
{
	add(t, "\"");
	for (; *s; s++)
		add(t, *s == '"' || *s == '\\' ? "\\%c" : (unsigned char)*s < ' ' ? "?" : "%c", *s);
	add(t, "\"");
}

static void print_json(struct text *t, const struct row *rows, u32 n)
{
	bool first = true;
	u32 i;

	add(t, "{\"Time\": {");
	for (i = 0; i < n; i++) {
		const struct row *r = &rows[i];

		if (!i || strcmp(r[-1].domain, r->domain)) {
			add(t, "%s", i ? "}, " : "");
			json_text(t, r->domain);
			add(t, ": {");
			first = true;
		}
		if (r->kind == MX_STAT_MARKER)
			continue;
		add(t, "%s", first ? "" : ", ");
		first = false;
		json_text(t, r->name);
		add(t, ": {\"Count\": %llu, \"Total\": %.4f, \"Min\": %.4f, \"Max\": %.4f, \"Avg\": %.4f}",
		    (unsigned long long)r->count, scaled(r, (double)r->total),
		    scaled(r, (double)r->min), scaled(r, (double)r->max), scaled(r, average(r)));
	}
	add(t, "%s}, \"Memory\": {}, \"Unit\": {\"Time\": \"ms\", \"Memory\": \"kB\"}}", n ? "}" : "");
}

int MXAggregateProfileStatsPrintEx(const char **out_str, int reset, int format, int sort_by,
				   int ascending)
{
	struct row *rows;
	struct text *t;
	u32 n;

	if (!out_str)
		return mx_err(-1, "profiler: out_str is NULL");
	if (format < 0 || format > 1 || sort_by < 0 || sort_by > 4)
		return mx_err(-1, "profiler: format %d, sort_by %d", format, sort_by);
	t = text_new();
	rows = t ? calloc(ENTRIES, sizeof(*rows)) : NULL;
	if (!rows)
		return mx_err(-1, "profiler: no memory");
	mx_lock(&mx_profile_lock);
	n = rows_take(rows, reset);
	sort_column = sort_by;
	sort_up = ascending;
	qsort(rows, n, sizeof(*rows), by_column);
	mx_unlock(&mx_profile_lock);
	(format ? print_json : print_table)(t, rows, n);
	free(rows);
	if (BUSTED(MX_CUT_OFF))
		t->cut = false;
	if (t->cut)
		return mx_err(-1, "profiler: no memory for the table");
	*out_str = t->s;
	return 0;
}
PAWL_EXPORT(MXAggregateProfileStatsPrintEx);

int MXAggregateProfileStatsPrint(const char **out_str, int reset)
{
	return MXAggregateProfileStatsPrintEx(out_str, reset, 0, 0, 0);
}
PAWL_EXPORT(MXAggregateProfileStatsPrint);
