/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that do not end: what they print (check_threads.c, engines.c). */
#ifndef TESTS_UNIT_HANG_H
#define TESTS_UNIT_HANG_H

/* From now on the program says where it is, and aborts, if so many seconds pass (0: no limit). */
void hang_limit(unsigned int seconds);
/* What a suite prints besides, for example the state of what it tests; NULL: nothing. */
extern void (*hang_says)(void) __attribute__((weak));

/* Dump every engine that the program has now. */
void engines_dump(void) __attribute__((weak));

#endif
