// SPDX-License-Identifier: Apache-2.0
/*
 * Dump: prints the ops in flight and their dependencies, even if threads are stuck.
 *
 * It reads every word with relaxed loads and changes nothing; each printed word was correct
 * at some time.  A signal handler may call it, on any thread and inside any call: it uses
 * nothing of the C library but write(), needs no slot, and leaves errno and the thread's error
 * text as they are.  Progress: bounded by the number of carved objects, and by the file's system
 * calls.
 */
#include <errno.h>
#include <stdarg.h>
#include <unistd.h>
#include <base/name.h>
#include <core/readmostly.h>
#include <core/wait.h>

#define TEXT_MAX 256u	/* bytes; what is longer is cut */

struct line {
	u32 n;
	char text[TEXT_MAX];
};

static void line_string(struct line *l, const char *s)
{
	while (*s && l->n < TEXT_MAX - 1)
		l->text[l->n++] = *s++;
}

static void line_number(struct line *l, u64 v)
{
	char digit[20];
	u32 n = 0;

	do
		digit[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n && l->n < TEXT_MAX - 1)
		l->text[l->n++] = digit[--n];
}

static int out(int fd, const char *fmt, ...) __printf(2, 3);

/* As dprintf(), with the formats %s, %u and %llu. */
static int out(int fd, const char *fmt, ...)
{
	struct line l = { .n = 0 };
	int saved = errno, rc = 0;
	u32 done = 0;
	va_list ap;
	ssize_t n;

	va_start(ap, fmt);
	for (; *fmt; fmt++) {
		if (*fmt != '%') {
			if (l.n < TEXT_MAX)
				l.text[l.n++] = *fmt;
			continue;
		}
		fmt++;
		if (*fmt == 's') {
			line_string(&l, va_arg(ap, const char *));
		} else if (*fmt == 'u') {
			line_number(&l, va_arg(ap, unsigned int));
		} else {
			fmt += 2;
			line_number(&l, va_arg(ap, unsigned long long));
		}
	}
	va_end(ap);
	if (l.n >= TEXT_MAX - 1)
		l.text[l.n - 1] = '\n';
	while (done < l.n && !rc) {
		n = write(fd, l.text + done, l.n - done);
		if (n > 0)
			done += (u32)n;
		else if (!n || errno != EINTR)
			rc = n ? -errno : -EIO;
	}
	errno = saved;
	return rc;
}

/* Before the name is read, the op may complete and its memory be reused for another op. */
static int out_op(struct pawl_engine *e, int fd, const char *what, u32 slot, u32 opi)
{
	const char *name = op_name(op_of(e, opi));
	char text[TEXT_MAX];

	name_copy(text, sizeof(text), name ? name : "(no name)");
	return out(fd, "thread %u: %s op %u %s\n", slot, what, opi, text);
}

int pawl_dump(struct pawl_engine *e, int fd)
{
	u32 i, n = slots_used(e), nv = pool_carved(e->pool[POOL_VAR]), idle = 0;
	int rc;

	rc = out(fd, "pawl engine %llu: %llu ops in flight, %u thread slots\n",
		 (unsigned long long)e->id, (unsigned long long)ops_in_flight(e), n);
	if (!rc && exec_worker_error(e->x))
		rc = out(fd, "workers could not be started: error %u\n",
			 (u32)-exec_worker_error(e->x));
	for (i = 0; i < n && !rc; i++) {
		struct thread *t = thread_of(e, i);
		u64 st = load_relaxed(&t->d.status);

		if ((st & 3) != PHASE_FINISHED)
			rc = out(fd, "thread %u: push %llu is %s\n", i,
				 (unsigned long long)(st >> 2),
				 (st & 3) == PHASE_LINKING ? "linking" : "attaching");
		if (!rc && load_relaxed(&t->running))
			rc = out_op(e, fd, "runs", i, load_relaxed(&t->running));
		if (!rc && load_relaxed(&t->waits_flight))
			rc = out(fd, "thread %u: waits until at most %llu ops are in flight\n", i,
				 (unsigned long long)load_relaxed(&t->waits_flight) - 1);
	}
	for (i = 1; i <= pool_carved(e->pool[POOL_OP]) && !rc; i++) {
		struct op *op = op_of(e, i);
		u32 tok = load_relaxed(&op->token);

		if ((tok & TOKEN_MASK) == TOKEN_ARMED)
			rc = out_op(e, fd, load_relaxed(&op->flags) & OP_WAITER ?
				    "waits by" : "pushed, to be completed:", load_relaxed(&op->owner), i);
	}
	for (i = 1; i <= nv && !rc; i++) {
		struct var *v = var_of(e, i);
		u32 gen = load_relaxed(&v->gen), count, opi;
		struct pair w;
		struct block *cur;
		u64 s, version;

		if (!(gen & 1))
			continue;
		/* In two halves, which a snapshot would read again until they belong together. */
		w = (struct pair){ load_relaxed(&v->word.tag), load_relaxed(&v->word.val) };
		cur = version_of(e, i, word_cur(w.val));
		s = load_relaxed(&cur->state);
		version = load_relaxed(&var_side_of(e, i)->version);
		count = block_count(s) + (w.val & WORD_LASTW ? 0 : word_joined(w.val));
		if (tag_is_rm(w.tag) && !(w.tag & RM_TAG_CLOSED))
			count += rm_reading(e, rm_tag_index(w.tag)) - 1;
		count &= JOIN_MASK;
		if ((s & BLOCK_DONE) && !count && !(s & BLOCK_ERR)) {
			idle++;
			continue;
		}
		rc = out(fd, "var %u.%u: version %llu, newest %s, last pushed %s %u, %u holders of it%s%s%s\n",
			 i, gen, (unsigned long long)version,
			 s & BLOCK_DONE ? "write done" : "write pending",
			 tag_is_rm(w.tag) ? "by many, rm" : "by thread",
			 tag_is_rm(w.tag) ? rm_tag_index(w.tag) : tag_slot(w.tag), count,
			 s & BLOCK_ERR ? ", poisoned" : "",
			 w.val & WORD_DELETED ? ", deleted" : "",
			 block_list(s) && !(s & BLOCK_DONE) ? ", readers wait" : "");
		if (!rc && block_list(s) && !(s & BLOCK_DONE)) {
			char name[TEXT_MAX];
			const char *p;

			dep_of(e, block_list(s), &opi);
			p = op_name(op_of(e, opi));
			name_copy(name, sizeof(name), p ? p : "");
			rc = out(fd, "  newest waiting reader: op %u%s%s, waits for %u accesses\n", opi,
				 name[0] ? " " : "", name, load_relaxed(&op_of(e, opi)->wait));
		}
	}
	return rc ? rc : out(fd, "%u vars idle\n", idle);
}
PAWL_EXPORT(pawl_dump);
