// SPDX-License-Identifier: Apache-2.0
/*
 * The framing of HTTP/1.1, which has to be strict.
 *
 * http-parser is more lenient than servers in front of this one may be, and where two servers
 * disagree on the end of a request, a client can smuggle one past the first.  So the framing is
 * checked here: lines end with CR LF, no header continues in a further line, there is one
 * Host and at most one Transfer-Encoding, which is chunked, and chunks have exactly their form.
 */

#include "serve.h"

enum { HEAD_LF, SIZE_FIRST, SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_FIRST,
       TRAILER, TRAILER_LF, LAST_LF, ENDED };

void frame_begin(struct conn *c)
{
	c->framing = HEAD_LF;
}

/* Lines of a head end with CR LF, and the next one begins with no white space. */
bool frame_lines(struct conn *c, const char *p, size_t n)
{
	const char *end = p + n, *lf;

	if (n && c->last == '\n' && (*p == ' ' || *p == '\t'))
		return false;
	for (lf = p; (lf = memchr(lf, '\n', (size_t)(end - lf))); lf++)
		if ((lf > p ? lf[-1] : c->last) != '\r' ||
		    (lf + 1 < end && (lf[1] == ' ' || lf[1] == '\t')))
			return false;
	if (n)
		c->last = end[-1];
	return true;
}

/* What follows a head: its last byte, and the form of chunks. */
bool frame_chunks(struct conn *c, const char *p, size_t n)
{
	unsigned int state = c->framing;
	bool good = true;
	size_t k;
	char ch;

	while (good && n && state != ENDED) {
		ch = *p;
		k = 1;
		switch (state) {
		case HEAD_LF:
			good = ch == '\n' && c->last == '\r';
			state = c->parser.flags & F_CHUNKED ? SIZE_FIRST : ENDED;
			c->chunk = 0;
			break;
		case SIZE_FIRST:
		case SIZE:
			if (js_hex(ch) >= 0) {
				good = c->chunk < (uint64_t)1 << 56;
				c->chunk = c->chunk << 4 | (uint64_t)js_hex(ch);
				state = SIZE;
			} else {
				good = state == SIZE && (ch == '\r' || ch == ';');
				state = ch == '\r' ? SIZE_LF : EXTENSION;
			}
			break;
		case EXTENSION:
			good = ch != '\n';
			state = ch == '\r' ? SIZE_LF : EXTENSION;
			break;
		case SIZE_LF:
			good = ch == '\n';
			state = c->chunk ? DATA : TRAILER_FIRST;
			break;
		case DATA:
			k = n < c->chunk ? n : (size_t)c->chunk;
			c->chunk -= k;
			state = c->chunk ? DATA : DATA_CR;
			break;
		case DATA_CR:
			good = ch == '\r';
			state = DATA_LF;
			break;
		case DATA_LF:
			good = ch == '\n';
			state = SIZE_FIRST;
			break;
		case TRAILER_FIRST:
			good = ch != '\n' && ch != ' ' && ch != '\t';
			state = ch == '\r' ? LAST_LF : TRAILER;
			break;
		case TRAILER:
			good = ch != '\n';
			state = ch == '\r' ? TRAILER_LF : TRAILER;
			break;
		default:
			good = ch == '\n';
			state = state == LAST_LF ? ENDED : TRAILER_FIRST;
		}
		p += k;
		n -= k;
	}
	c->framing = (unsigned char)state;
	return good;
}
