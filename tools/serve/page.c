// SPDX-License-Identifier: Apache-2.0
/*
 * The page at /: page.html, which is part of the program.  It uses only calls that are open to
 * every client, and nothing from other servers; the policy has the hashes of its script and
 * style.
 */

#include "serve.h"

/* page_html and PAGE_POLICY */
#include <generated/page.h>

void page_answer(struct conn *c)
{
	if (!out_begin(c))
		return;
	if (!buf_add(c->loop, &c->out, (const char *)page_html, sizeof(page_html)))
		conn_error(c, 503, "out of memory");
	else
		out_end(c, 200, "text/html; charset=utf-8",
			"Content-Security-Policy: " PAGE_POLICY "\r\n"
			"X-Content-Type-Options: nosniff\r\nReferrer-Policy: same-origin\r\n"
			"Cache-Control: no-cache\r\n");
}
