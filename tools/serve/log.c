// SPDX-License-Identifier: Apache-2.0
/* The log: a line of JSON for each event, on standard error, in one write. */

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

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

void log_line(const char *level, const char *event, ...)
{
	char buf[2048];
	size_t n, size = sizeof(buf) - 3;
	struct timespec ts;
	struct tm tm;
	const char *key;
	va_list ap;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(buf, size, "{\"time\":\"%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(buf + n, size - n, ".%03ldZ\",\"level\":\"%s\",\"event\":\"%s\"",
			      ts.tv_nsec / 1000000, level, event);
	va_start(ap, event);
	while ((key = va_arg(ap, const char *)) && n + 64 < size) {
		n += (size_t)snprintf(buf + n, size - n, ",\"%.32s\":", key);
		n = text(buf, n, size, va_arg(ap, const char *));
	}
	va_end(ap);
	buf[n++] = '}';
	buf[n++] = '\n';
	/* a log that cannot be written is no reason to stop */
	(void)!write(STDERR_FILENO, buf, n);
}
