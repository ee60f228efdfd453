/* SPDX-License-Identifier: Apache-2.0 */
/* A program that ends by the C library's err(): with status 3 and a message. */
#include <err.h>
#include <errno.h>
#include <pawl/engine.h>

int main(void)
{
	struct pawl_engine *e;

	if (pawl_engine_create(NULL, &e) || pawl_engine_destroy(e))
		return 1;
	errno = ENOENT;
	err(3, "own message");
}
