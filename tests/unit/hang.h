/* SPDX-License-Identifier: Apache-2.0 */
/* What tests that hang print (check_threads.c, engines.c). */
#ifndef TESTS_UNIT_HANG_H
#define TESTS_UNIT_HANG_H

/* After so many seconds the program prints its position and aborts (0: no limit). */
void hang_limit(unsigned int seconds);
/* Prints more, for example the state of what a suite tests; may be NULL. */
extern void (*hang_says)(void) __attribute__((weak));

/* Dump every engine that exists. */
void engines_dump(void) __attribute__((weak));

#endif
