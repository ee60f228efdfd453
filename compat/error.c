// SPDX-License-Identifier: Apache-2.0
/*
 * The last error of each thread, and interned names.
 *
 * The caller of MXNet's API may free an op's name when the op is complete, but libpawl keeps
 * names for traces.  So each name is copied once, into a table that only grows.
 *
 * Ordering: COMPAT-N1 (entry published) <-> COMPAT-N2 (entry found): its text.
 *
 * Progress: lock-free; a new name and a thread's first error or name allocate.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <compat/internal.h>

#define TEXT_MAX	4096u

#define RECENT		64u

/*
 * Data of a thread, from its first error or name until its end.  It is not in thread-local
 * variables, because a program that loads the library late has little space for those.
 */
struct own {
	struct { const char *s, *copy; } recent[RECENT];
	char text[TEXT_MAX];
};

static __thread struct own *own;
static __thread bool text_lost;	/* there was no memory for the last error */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static bool have_own_key;

static void own_free(void *p)
{
	free(p);
	own = NULL;
}

static void own_key_make(void)
{
	have_own_key = !pthread_key_create(&own_key, own_free);
}

/* NULL: no memory, or no key. */
static __cold struct own *own_new(void)
{
	pthread_once(&own_once, own_key_make);
	own = have_own_key ? calloc(1, sizeof(*own)) : NULL;
	if (own && pthread_setspecific(own_key, own))
		own_free(own);
	return own;
}

static inline struct own *own_get(void)
{
	return likely(own) ? own : own_new();
}

int mx_err(int code, const char *fmt, ...)
{
	struct own *o = own_get();
	va_list ap;

	va_start(ap, fmt);
	text_lost = !o;
	if (o && vsnprintf(o->text, TEXT_MAX, fmt, ap) < 0)
		o->text[0] = '\0';
	va_end(ap);
	return code;
}

int mx_err_pawl(int code)
{
	return mx_err(code, "%s", pawl_error_text());
}

const char *pawl_mx_last_error(void)
{
	return text_lost ? "an error, and no memory for its text" : own ? own->text : "";
}
PAWL_EXPORT(pawl_mx_last_error);

void pawl_mx_set_last_error(const char *s)
{
	mx_err(0, "%s", s ? s : "");
}
PAWL_EXPORT(pawl_mx_set_last_error);

/* --- names --- */

#define BUCKETS		1024u
#define NAMES_MAX	65536u
#define NAME_MAX_LEN	127u

struct name {
	struct name *next;	/* I */
	u32 hash;
	char text[];
};

static struct name *buckets[BUCKETS];	/* A */
static u32 nnames;			/* A */

static const struct name *name_find(const struct name *from, const struct name *to, u32 hash,
				    const char *s, size_t n)
{
	for (; from != to; from = from->next)
		if (from->hash == hash && !strncmp(from->text, s, n) && !from->text[n])
			return from;
	return NULL;
}

static const char *name_keep(const char *s)
{
	struct name *head, *new = NULL, *seen = NULL;
	const struct name *found;
	u32 hash = 2166136261u;
	size_t n;

	for (n = 0; n < NAME_MAX_LEN && s[n]; n++)
		hash = (hash ^ (unsigned char)s[n]) * 16777619u;
	head = load_acquire(&buckets[hash % BUCKETS]);	/* COMPAT-N2 <-> COMPAT-N1 */
	for (;;) {
		found = name_find(head, seen, hash, s, n);
		if (found) {
			free(new);
			return found->text;
		}
		/* The table is bounded: later names all become "op". */
		if (!new && fetch_add_relaxed(&nnames, 1) >= NAMES_MAX)
			return "op";
		if (!new)
			new = calloc(1, sizeof(*new) + n + 1);
		if (!new)
			return "op";
		new->hash = hash;
		memcpy(new->text, s, n);
		new->next = head;
		seen = head;
		/* COMPAT-N1 <-> COMPAT-N2 */
		if (cas_acq_rel_acquire(&buckets[hash % BUCKETS], &head, new))
			return new->text;
	}
}

/* Most names are pushed repeatedly: a thread caches the copy that belongs to a pointer. */
const char *mx_name(const char *s)
{
	u32 i = (u32)((uintptr_t)s >> 3) % RECENT;
	struct own *o;

	if (!s)
		return NULL;
	o = own_get();
	if (unlikely(!o))
		return name_keep(s);
	/* The pointer may hold another text by now.  A truncated text is always looked up. */
	if (likely(o->recent[i].s == s && !strcmp(o->recent[i].copy, s)))
		return o->recent[i].copy;
	o->recent[i].copy = name_keep(s);
	o->recent[i].s = s;
	return o->recent[i].copy;
}
