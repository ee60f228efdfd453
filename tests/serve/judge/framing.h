/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a message of HTTP/1.1 that has a Content-Length, or no body. */
#ifndef JUDGE_FRAMING_H
#define JUDGE_FRAMING_H

#include <stdlib.h>
#include <string.h>

/* The length of the first message in the buffer, or 0 if it has not ended. */
static inline size_t message_length(const char *p, size_t n)
{
	static const char name[] = "\r\nContent-Length:";
	const char *head = memmem(p, n, "\r\n\r\n", 4), *length;
	size_t total;

	if (!head)
		return 0;
	total = (size_t)(head - p) + 4;
	length = memmem(p, total, name, sizeof(name) - 1);
	if (length)
		total += strtoul(length + sizeof(name) - 1, NULL, 10);
	return n >= total ? total : 0;
}

#endif
