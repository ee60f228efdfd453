/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message of each thread's last error; see base/err.h.
 *
 * A thread's first err() allocates the buffer, and the end of the thread frees it.  The buffer
 * is not a thread-local variable, because a program that loads libpawl late has little space
 * for those.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/err.h>

#define TEXT_MAX	256u

static char lost[] = "an error, and no memory for its message";
static __thread char *text;	/* O: TEXT_MAX bytes; NULL: not allocated yet; or lost */

#ifdef PAWL_SIM

static char *text_new(void)
{
	static __thread char room[TEXT_MAX];

	return room;
}

#else

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;	/* I: by once */
static bool have_key;		/* I: by once */

static void thread_exit(void *arg)
{
	text = NULL;
	free(arg);
}

static void once_init(void)
{
	have_key = !pthread_key_create(&key, thread_exit);
}

/* Returns lost if there is no memory or no key.  Progress: blocking (malloc()). */
static char *text_new(void)
{
	char *room;

	pthread_once(&once, once_init);
	room = have_key ? malloc(TEXT_MAX) : NULL;
	if (room && pthread_setspecific(key, room)) {
		free(room);
		room = NULL;
	}
	return room ? room : lost;
}

#endif

/* Progress: wait-free after the thread's first call.  The text is valid until the next one. */
int err(int code, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	if (!text || text == lost)
		text = text_new();
	if (text != lost) {
		va_start(ap, fmt);
		if (vsnprintf(text, TEXT_MAX, fmt, ap) < 0)
			text[0] = '\0';
		va_end(ap);
	}
	errno = saved;
	return code;
}

int err_field(int code, const char *fmt, ...)
{
	char was[TEXT_MAX], field[TEXT_MAX];
	const char *at;
	va_list ap;

	snprintf(was, sizeof(was), "%s", err_text());
	at = strstr(was, ": op.");
	if (!at)
		return code;
	va_start(ap, fmt);
	vsnprintf(field, sizeof(field), fmt, ap);
	va_end(ap);
	return err(code, "%s%s", field, at + strlen(": op"));
}

/* Returns "" if this thread had no error yet.  Progress: wait-free. */
const char *err_text(void)
{
	return text ? text : "";
}
