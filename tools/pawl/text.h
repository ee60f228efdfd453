/* SPDX-License-Identifier: Apache-2.0 */
/* A text that is read piece by piece, also compressed by gzip, and the values of JSON in it. */
#ifndef PAWL_TEXT_H
#define PAWL_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

#define TEXT_MAX ((size_t)1 << 30)	/* bytes in memory at a time */

struct text {
	const char *name;
	gzFile f;
	char *buf;
	size_t at, n, cap;	/* read up to here; bytes in the buffer, and its size */
	bool end;		/* it has all that the file has */
	size_t line, column;	/* of `at` */
	size_t bytes;		/* before the buffer */
	char *err;
	size_t errlen;
};

int text_open(struct text *t, const char *path, char *err, size_t errlen);
void text_close(struct text *t);
/* Read more behind what is in the buffer, of which what was read up to is dropped. */
int text_more(struct text *t);
/* -EBADMSG, with the position. */
int text_refuse(struct text *t, const char *why);
/* Skip white space.  *c is the character behind it, which is not read, or 0 at the end. */
int text_peek(struct text *t, int *c);
/* Read c, or return -EBADMSG. */
int text_expect(struct text *t, int c);
/* Read one value of any kind. */
int text_value(struct text *t, json_t **v);

#endif
