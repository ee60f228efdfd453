/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of pawl only.  They return false if it is none of them. */
#ifndef TELL_H
#define TELL_H

bool tell_test(const char *test, const char *engine, int threads);	/* also launch.c's */
bool launch_test(const char *test, const char *engine, int threads);

#endif
