// SPDX-License-Identifier: Apache-2.0
/*
 * A trace of requests and of the layers that ran for them, for Perfetto.
 *
 * Each loop has a ring with the times of the last requests that it has answered, and an engine
 * has a ring of ops for each thread.  All use the same clock: an engine's trace names the time of
 * its ts 0, and the ops of the second engine and the events of requests are appended to it.
 *
 * Ownership: the main thread allocates the rings.  A loop owns its ring from the message that
 * passes it on until the loop has taken the next one (loops_take()); then the main thread owns
 * it again.  No ring is shared, and a request costs a copy of its times.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve.h"

#define REQUESTS	4096		/* the last ones of a loop */
#define OPS		16384		/* the last events of a thread of the engine */
#define LIGHT_ARROWS	(1ull << 40)	/* more than an engine's trace has */

struct times {
	const struct entry *e;
	int64_t version;
	uint64_t first, arrival, start, launched, done, end;	/* ns; 0: not reached */
	uint64_t rows;
	unsigned int shared;		/* requests in its run */
	int http;
};

struct trace {
	uint64_t n;
	struct times of[REQUESTS];
};

void trace_request(struct loop *l, const struct request *r, int http)
{
	const struct slot *s = r->slot;
	struct trace *t = l->trace;

	if (!t)
		return;
	t->of[t->n++ % REQUESTS] = (struct times){
		.e = r->v->e, .version = r->v->m->version, .first = r->first_ns,
		.arrival = r->arrival_ns, .start = s ? s->start_ns : 0,
		.launched = s ? s->launched_ns : 0, .done = s ? s->done_ns : 0,
		.end = now_ns(), .rows = r->rows, .shared = s ? s->nreqs : 0, .http = http };
}

/* The nested events of one request, on its own track. */
static void part(FILE *f, const char *name, uint64_t id, uint64_t base, uint64_t from,
		 uint64_t to, const char *args)
{
	/* what began before the trace has no time in it */
	if (from < base || to < from)
		return;
	fprintf(f, ",\n{\"ph\":\"b\",\"cat\":\"request\",\"name\":\"%s\",\"id\":%" PRIu64
		",\"pid\":2,\"tid\":2,\"ts\":%.3f,\"args\":{%s}},\n"
		"{\"ph\":\"e\",\"cat\":\"request\",\"name\":\"%s\",\"id\":%" PRIu64
		",\"pid\":2,\"tid\":2,\"ts\":%.3f}", name, id, (double)(from - base) / 1e3, args,
		name, id, (double)(to - base) / 1e3);
}

/* Returns how many the ring has lost. */
static uint64_t requests(FILE *f, const struct trace *t, unsigned int loop, uint64_t base)
{
	uint64_t k = t->n > REQUESTS ? t->n - REQUESTS : 0;
	char args[256];

	for (; k < t->n; k++) {
		const struct times *r = &t->of[k % REQUESTS];
		uint64_t id = k * MAX_LOOPS + loop;

		snprintf(args, sizeof(args), "\"model\":\"%s\",\"version\":%" PRId64
			 ",\"status\":%d,\"rows\":%" PRIu64, r->e->name, r->version, r->http,
			 r->rows);
		part(f, "request", id, base, r->first, r->end, args);
		part(f, "receive", id, base, r->first, r->arrival, "");
		part(f, "queue", id, base, r->arrival, r->start ? r->start : r->end, "");
		if (!r->start)
			continue;
		part(f, "copy", id, base, r->start, r->launched, "");
		snprintf(args, sizeof(args), "\"requests\":%u", r->shared);
		part(f, "run", id, base, r->launched, r->done, args);
		part(f, "answer", id, base, r->done, r->end, "");
	}
	return t->n > REQUESTS ? t->n - REQUESTS : 0;
}

/* The name of a process, with how much of it the rings have lost. */
static void process(FILE *f, int pid, const char *name, uint64_t lost, const char *of_what)
{
	fprintf(f, ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s",
		pid, name);
	if (lost)
		fprintf(f, ", %" PRIu64 " %s lost", lost, of_what);
	fputs("\"}}", f);
}

int trace_start(struct server *sv, const char **why)
{
	struct trace *t[MAX_LOOPS];
	unsigned int i;
	int rc;

	*why = "a trace is running";
	if (sv->loops[0].next_trace)
		return -EALREADY;
	*why = "out of memory";
	for (i = 0; i < sv->cfg.loops; i++) {
		t[i] = calloc(1, sizeof(**t));
		if (!t[i])
			break;
	}
	rc = i < sv->cfg.loops ? -ENOMEM : pawl_trace_start(sv->e[WORKERS], OPS);
	if (!rc) {
		rc = pawl_trace_start(sv->e[LIGHT], OPS);
		if (rc)
			pawl_trace_stop(sv->e[WORKERS]);
	}
	if (rc) {
		if (rc != -ENOMEM)
			*why = pawl_error_text();
		while (i-- > 0)
			free(t[i]);
		return rc;
	}
	for (i = 0; i < sv->cfg.loops; i++)
		sv->loops[i].next_trace = t[i];
	loops_take(sv);
	return 0;
}

/* Write p to f up to the number after key.  Returns its position, or NULL if there is none. */
static const char *until(FILE *f, const char *p, const char *end, const char *key)
{
	const char *at = memmem(p, (size_t)(end - p), key, strlen(key));

	if (!at)
		return NULL;
	at += strlen(key);
	fwrite(p, 1, (size_t)(at - p), f);
	return at;
}

/* Write one event of the light engine, with separate numbers for arrows and process. */
static void light_event(FILE *f, const char *p, const char *end, double shift_us)
{
	const char *at;
	char *rest;

	fputs(",\n", f);
	at = until(f, p, end, "\"id\":");
	if (at) {
		fprintf(f, "%llu", strtoull(at, &rest, 10) + LIGHT_ARROWS);
		p = rest;
	}
	at = until(f, p, end, "\"pid\":");
	if (at) {
		fputs("3", f);
		p = at + 1;
	}
	at = until(f, p, end, "\"ts\":");
	if (at) {
		fprintf(f, "%.3f", strtod(at, &rest) + shift_us);
		p = rest;
	}
	fwrite(p, 1, (size_t)(end - p), f);
}

/*
 * Write an engine's trace without its last line.  The first call sets *base to the time of its
 * ts 0; the second one converts its events to that clock.
 */
static int ops(struct pawl_engine *e, FILE *f, uint64_t *base)
{
	static const char mark[] = "\"base_ns\":\"", lost[] = "\"events_lost\":", tail[] = "\n]}\n";
	int fd = memfd_create("pawl-trace", MFD_CLOEXEC), rc;
	char path[32], *text, *at, *next, *end;
	uint64_t zero;
	struct stat st;

	if (fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = pawl_trace_write(e, path);
	if (!rc && fstat(fd, &st))
		rc = -errno;
	if (rc) {
		close(fd);
		return rc;
	}
	text = mmap(NULL, (size_t)st.st_size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	if (text == MAP_FAILED)
		return -ENOMEM;
	at = memmem(text, (size_t)st.st_size, mark, sizeof(mark) - 1);
	zero = at ? strtoull(at + sizeof(mark) - 1, NULL, 10) : 0;
	end = text + st.st_size - (sizeof(tail) - 1);
	if (!*base) {
		*base = zero;
		fwrite(text, 1, (size_t)(end - text), f);
	} else {
		/* each line is an event; the first two name the clock and the process */
		next = memchr(text, '\n', (size_t)(end - text));
		next = next ? memchr(next + 1, '\n', (size_t)(end - next - 1)) : NULL;
		at = memmem(text, (size_t)st.st_size, lost, sizeof(lost) - 1);
		process(f, 3, "pawl, light runs", at ? strtoull(at + sizeof(lost) - 1, NULL, 10) : 0,
			"events");
		while (next) {
			at = next + 1;
			next = memchr(at, '\n', (size_t)(end - at));
			light_event(f, at, next ? next - 1 : end,
				    ((double)zero - (double)*base) / 1e3);
		}
	}
	munmap(text, (size_t)st.st_size + 1);
	return 0;
}

static struct trace *rings_back(struct server *sv, struct trace **t)
{
	unsigned int i;

	for (i = 0; i < sv->cfg.loops; i++) {
		t[i] = sv->loops[i].next_trace;
		sv->loops[i].next_trace = NULL;
	}
	return t[0];
}

int trace_stop(struct server *sv, char **text, const char **why)
{
	struct trace *t[MAX_LOOPS];
	uint64_t base = 0, lost = 0;
	unsigned int i;
	size_t n;
	FILE *f;
	int rc;

	*why = "no trace is running";
	if (!rings_back(sv, t))
		return -EINVAL;
	loops_take(sv);
	for (i = 0; i < ENGINES; i++)
		pawl_trace_stop(sv->e[i]);
	*text = NULL;
	f = open_memstream(text, &n);
	rc = f ? 0 : -ENOMEM;
	for (i = 0; !rc && i < ENGINES; i++)
		rc = ops(sv->e[i], f, &base);
	for (i = 0; i < sv->cfg.loops; i++) {
		if (!rc)
			lost += requests(f, t[i], i, base);
		free(t[i]);
	}
	if (!rc) {
		process(f, 2, "requests", lost, "of them");
		fputs("\n]}\n", f);
	}
	if (f && (ferror(f) | fclose(f)) && !rc)
		rc = -ENOMEM;
	if (rc) {
		free(*text);
		*text = NULL;
		*why = rc == -ENOMEM ? "out of memory" : strerror(-rc);
	}
	return rc;
}

/* Called when no loop runs. */
void trace_free(struct server *sv)
{
	struct trace *t[MAX_LOOPS];
	unsigned int i;

	if (rings_back(sv, t))
		for (i = 0; i < sv->cfg.loops; i++)
			free(t[i]);
}
