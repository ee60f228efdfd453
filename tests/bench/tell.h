/* SPDX-License-Identifier: Apache-2.0 */
/* tell.c: tests of pawl only.  Returns false if it is none of them. */
#ifndef TELL_H
#define TELL_H

bool tell_test(const char *test, const char *engine, int threads);

#endif
