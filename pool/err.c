/* SPDX-License-Identifier: Apache-2.0 */
/* The last error's message, one per thread; see base/err.h. */
#include <stdarg.h>
#include <stdio.h>

#include <base/err.h>

static __thread char text[256];

/* Progress: wait-free.  Lifetime: the text stays until this thread's next err(). */
int err(int code, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	errno = saved;
	return code;
}

/* Progress: wait-free.  "" if this thread had no error yet. */
const char *err_text(void)
{
	return text;
}
