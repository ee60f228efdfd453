// SPDX-License-Identifier: Apache-2.0
/*
 * The log: a line of JSON for each event, on standard error, in one write.
 *
 * The write waits as long as the reader of a pipe, or a terminal, does.  So a thread of its own
 * writes the lines, and no other thread waits for it.  The lines that wait are bounded: beyond
 * LOG_MAX bytes, and if a write fails, a line is dropped and counted.  The end of the process
 * waits for the thread at most LOG_END_S seconds.
 *
 * Progress: log_line() allocates the line, and does not block.  Before log_start(), and in a
 * process that has no such thread, it writes the line itself.
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

#define LOG_MAX		(256u << 10)	/* bytes of lines that wait */
#define LOG_END_S	2

static size_t text(char *buf, size_t n, size_t size, const char *s)
{
	const char *end = s + strlen(s);
	unsigned int k;

	if (n < size)
		buf[n++] = '"';
	for (; *s && n + 8 < size; s++) {
		if ((unsigned char)*s < 0x20)
			n += (size_t)snprintf(buf + n, size - n, "\\u%04x", (unsigned char)*s);
		else if (*s == '"' || *s == '\\')
			buf[n++] = '\\', buf[n++] = *s;
		else if ((unsigned char)*s < 0x80)
			buf[n++] = *s;
		else if ((k = js_utf8(s, end)))
			for (s--; k; k--)
				buf[n++] = *++s;
		else
			buf[n++] = '?';
	}
	if (n < size)
		buf[n++] = '"';
	return n;
}

struct line {
	struct msg msg;
	size_t n;
	char text[];
};

static struct port log_port;		/* static: a thread in a write outlives the server */
static pthread_t writer;
static bool started, leaves;		/* I, O */
static u64 waiting, dropped;		/* A: bytes of lines in the port; lines */

uint64_t log_dropped(void)
{
	return load_relaxed(&dropped);
}

/* Returns false if the line is lost. */
static bool write_line(const char *p, size_t n)
{
	struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
	ssize_t k;

	while (n) {
		k = write(STDERR_FILENO, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		/* the process that started this one may have made its pipe non-blocking */
		if (k < 0 && errno == EAGAIN && poll(&fd, 1, -1) >= 0)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

static size_t begin_line(char *buf, size_t size, struct timespec ts, const char *level,
			 const char *event)
{
	struct tm tm;
	size_t n;

	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(buf, size, "{\"time\":\"%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(buf + n, size - n,
				    ".%03ldZ\",\"level\":\"%s\",\"event\":\"%s\"",
				    ts.tv_nsec / 1000000, level, event);
}

static struct timespec real_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts;
}

/* On the writer: a line of so many bytes, of n that waited. */
static void written(const char *line, size_t bytes, size_t waited)
{
	static u64 told;
	u64 lost;
	char buf[256];
	size_t n;

	if (!write_line(line, bytes))
		add_relaxed(&dropped, 1);
	add_relaxed(&waiting, -(u64)waited);
	lost = load_relaxed(&dropped);
	/* once there is room again, the log itself says how many lines it lacks */
	if (lost == told || load_relaxed(&waiting))
		return;
	n = begin_line(buf, sizeof(buf), real_time(), "warning", "log");
	n += (size_t)snprintf(buf + n, sizeof(buf) - n, ",\"dropped\":\"%" PRIu64 "\"}\n", lost);
	if (write_line(buf, n))
		told = lost;
}

static void write_msg(struct msg *m)
{
	struct line *l = m->arg;

	written(l->text, l->n, l->n);
	free(l);
}

static void write_access(struct msg *m)
{
	struct access *a = m->arg;
	const struct { const char *key; uint64_t ns; } times[] = {
		{ "queue_us", a->queue_ns }, { "compute_us", a->compute_ns },
		{ "total_us", a->total_ns } };
	const struct { const char *key, *text; } texts[] = { { "protocol", a->protocol },
		{ "client", a->client }, { "id", a->id }, { "traceparent", a->traceparent },
		{ "model", a->model } };
	char buf[2048];
	size_t n, size = sizeof(buf) - 3, i;

	n = begin_line(buf, size, a->time, "info", "access");
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		n += (size_t)snprintf(buf + n, size - n, ",\"%s\":", texts[i].key);
		n = text(buf, n, size, texts[i].text);
	}
	n += (size_t)snprintf(buf + n, size - n, ",\"version\":\"%" PRId64 "\",\"status\":\"%d\""
			      ",\"rows\":\"%" PRIu64 "\"", a->version, a->status, a->rows);
	for (i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		n += (size_t)snprintf(buf + n, size - n, ",\"%s\":\"%" PRIu64 "\"",
				      times[i].key, times[i].ns / 1000);
	buf[n++] = '}';
	buf[n++] = '\n';
	written(buf, n, sizeof(*a));
	free(a);
}

struct access *log_access_begin(void)
{
	struct access *a = started && load_relaxed(&waiting) + sizeof(*a) <= LOG_MAX ?
		calloc(1, sizeof(*a)) : NULL;

	if (!a)
		add_relaxed(&dropped, 1);
	return a;
}

void log_access(struct access *a)
{
	a->time = real_time();
	add_relaxed(&waiting, sizeof(*a));
	port_send(&log_port, &a->msg, write_access, a);
}

static void leave(struct msg *m)
{
	(void)m;
	leaves = true;
}

static void *writer_main(void *arg)
{
	struct pollfd fd = { .fd = log_port.efd, .events = POLLIN };

	(void)arg;
	this_port = &log_port;
	while (!leaves) {
		poll(&fd, 1, -1);
		port_clear(&log_port);
		port_run(&log_port);
	}
	return NULL;
}

int log_start(void)
{
	int rc = port_init(&log_port);

	if (rc)
		return rc;
	rc = -pthread_create(&writer, NULL, writer_main, NULL);
	if (rc)
		port_fini(&log_port);
	started = !rc;
	return rc;
}

void log_stop(void)
{
	static struct msg last;
	struct timespec until;

	if (!started)
		return;
	port_send(&log_port, &last, leave, NULL);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOG_END_S;
	/* a writer that still waits for its reader ends with the process */
	if (!pthread_timedjoin_np(writer, NULL, &until))
		port_fini(&log_port);
	started = false;
}

void log_line(const char *level, const char *event, ...)
{
	char buf[2048];
	size_t n, size = sizeof(buf) - 3;
	struct line *l;
	const char *key;
	va_list ap;

	n = begin_line(buf, size, real_time(), level, event);
	va_start(ap, event);
	while ((key = va_arg(ap, const char *)) && n + 64 < size) {
		n += (size_t)snprintf(buf + n, size - n, ",\"%.32s\":", key);
		n = text(buf, n, size, va_arg(ap, const char *));
	}
	va_end(ap);
	buf[n++] = '}';
	buf[n++] = '\n';
	if (!started) {
		if (!write_line(buf, n))
			add_relaxed(&dropped, 1);
		return;
	}
	/* threads that log at the same time can go beyond the limit by a line each */
	l = load_relaxed(&waiting) + n <= LOG_MAX ? malloc(sizeof(*l) + n) : NULL;
	if (!l) {
		add_relaxed(&dropped, 1);
		return;
	}
	l->n = n;
	memcpy(l->text, buf, n);
	add_relaxed(&waiting, n);
	port_send(&log_port, &l->msg, write_msg, l);
}
