// SPDX-License-Identifier: Apache-2.0
/*
 * Buffers of bodies and answers, and their memory.
 *
 * A loop keeps free buffers by size, for later requests, and frees those that it did not need
 * for a while.  An op of the engine has no loop: its buffers come from the heap and return to it.
 */

#include <stdio.h>
#include <stdlib.h>

#include "serve.h"

#define BUF_MIN		4096u
#define BUFS_KEPT	(256u << 20)	/* bytes of free buffers of a loop */
#define UNUSED_NS	2000000000u	/* how long they are kept without use, about */
#define TRIM_MIN	(1u << 20)	/* bytes freed at once, after which the heap is trimmed */

static unsigned int buf_class(size_t n)
{
	return n <= BUF_MIN ? 0 : 64 - (unsigned int)__builtin_clzll((n - 1) / BUF_MIN);
}

/* A free buffer of the loop, or NULL. */
static void *buf_take(struct loop *l, unsigned int k)
{
	void *p = l->bufs[k].first;

	if (!p)
		return NULL;
	memcpy(&l->bufs[k].first, p, sizeof(void *));
	l->bufs_bytes -= (size_t)BUF_MIN << k;
	if (--l->bufs[k].n < l->bufs[k].least)
		l->bufs[k].least = l->bufs[k].n;
	return p;
}

bool buf_grow(struct loop *l, struct buf *b, size_t n)
{
	unsigned int k = buf_class(n);
	void *p;

	if (k >= sizeof(l->bufs) / sizeof(l->bufs[0]))
		return false;
	p = l ? buf_take(l, k) : NULL;
	if (!p) {
		p = malloc((size_t)BUF_MIN << k);
		if (!p)
			return false;
	}
	if (b->n)
		memcpy(p, b->p, b->n);
	n = b->n;
	buf_put(l, b);
	*b = (struct buf){ p, n, (size_t)BUF_MIN << k, !l };
	return true;
}

void buf_put(struct loop *l, struct buf *b)
{
	unsigned int k;

	if (b->p && (!l || b->heap || l->bufs_bytes + b->cap > BUFS_KEPT)) {
		free(b->p);
	} else if (b->p) {
		k = buf_class(b->cap);
		memcpy(b->p, &l->bufs[k].first, sizeof(void *));
		l->bufs[k].first = b->p;
		l->bufs[k].n++;
		l->bufs_bytes += b->cap;
	}
	*b = (struct buf){ 0 };
}

/* What of each size was free all the time since the last look is too much. */
void buf_tick(struct loop *l)
{
	size_t i, before = l->bufs_bytes;
	unsigned int k;

	if (l->now - l->bufs_ns < UNUSED_NS)
		return;
	l->bufs_ns = l->now;
	for (k = 0; k < sizeof(l->bufs) / sizeof(l->bufs[0]); k++) {
		for (i = l->bufs[k].least; i > 0; i--)
			free(buf_take(l, k));
		l->bufs[k].least = l->bufs[k].n;
	}
	if (before - l->bufs_bytes > TRIM_MIN)
		helper_trim(l->sv, TRIM_HEAP);
}

void buf_free(struct loop *l)
{
	unsigned int k;
	void *p;

	for (k = 0; k < sizeof(l->bufs) / sizeof(l->bufs[0]); k++)
		while ((p = buf_take(l, k)))
			free(p);
}

bool buf_add(struct loop *l, struct buf *b, const char *p, size_t n)
{
	if (!buf_room(l, b, b->n + n))
		return false;
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	return true;
}

bool buf_number(struct loop *l, struct buf *b, int64_t v)
{
	char digits[JS_DIGITS + 1], *end = digits + sizeof(digits), *p;

	p = js_digits(end, v < 0 ? -(uint64_t)v : (uint64_t)v);
	if (v < 0)
		*--p = '-';
	return buf_add(l, b, p, (size_t)(end - p));
}

static bool buf_vprintf(struct loop *l, struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n;

	if (!buf_room(l, b, b->n + 128))
		return false;
	va_copy(again, ap);
	n = vsnprintf(b->p + b->n, b->cap - b->n, fmt, ap);
	if (n >= 0 && (size_t)n >= b->cap - b->n) {
		if (!buf_room(l, b, b->n + (size_t)n + 1))
			n = -1;
		else
			vsnprintf(b->p + b->n, b->cap - b->n, fmt, again);
	}
	va_end(again);
	if (n < 0)
		return false;
	b->n += (size_t)n;
	return true;
}

bool buf_printf(struct loop *l, struct buf *b, const char *fmt, ...)
{
	va_list ap;
	bool ok;

	va_start(ap, fmt);
	ok = buf_vprintf(l, b, fmt, ap);
	va_end(ap);
	return ok;
}

bool buf_json(struct loop *l, struct buf *b, const char *text)
{
	const char *end = text + strlen(text);
	bool ok = buf_add(l, b, "\"", 1);
	size_t n;

	for (; *text && ok; text += n ? n : 1) {
		unsigned char c = (unsigned char)*text;

		for (n = 0; text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' &&
			    text[n] != '\\'; n++)
			;
		if (n)
			ok = buf_add(l, b, text, n);
		else if (c == '"' || c == '\\')
			ok = buf_add(l, b, "\\", 1) && buf_add(l, b, text, 1);
		else if (c < 0x20)
			ok = buf_printf(l, b, "\\u%04x", c);
		else if (c < 0x80)
			ok = buf_add(l, b, text, 1);
		else if ((n = js_utf8(text, end)))
			ok = buf_add(l, b, text, n);
		else
			ok = buf_add(l, b, "?", 1);	/* a URL may have any bytes */
	}
	return ok && buf_add(l, b, "\"", 1);
}

/* --- the memory of bodies and answers ------------------------------------------- */

/*
 * The memory of a buffer with n bytes: the pages that they fill.  The smallest buffer has one.
 * The rest of a larger one, which the power of two leaves, has no memory until it is written.
 */
static size_t buf_bytes(size_t n)
{
	return (n + BUF_MIN - 1) & ~(size_t)(BUF_MIN - 1);
}

/*
 * What has not arrived does not count: a client cannot reserve memory with a header.  One that
 * is alone has room for anything.  Loops that ask at the same time can go beyond the limit by
 * what each of them has received.
 */
bool mem_room(struct server *sv, size_t mine, size_t n)
{
	uint64_t limit = load_relaxed(&sv->cfg.max_memory), others = load_relaxed(&sv->held) - mine;

	n = buf_bytes(n);
	return !others || (n <= limit && others <= limit - n);
}

void mem_hold(struct server *sv, size_t *mine, size_t n)
{
	n = buf_bytes(n);
	if (n != *mine)
		add_relaxed(&sv->held, (u64)n - *mine);
	*mine = n;
}
