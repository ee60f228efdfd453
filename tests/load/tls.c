/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that uses BYTES of the space that a program has for the thread-local variables of
 * libraries loaded later.
 */
static __thread char used[BYTES] __attribute__((tls_model("initial-exec")));

char *use_tls(void);

char *use_tls(void)
{
	return used;
}
