/* SPDX-License-Identifier: Apache-2.0 */
/* Queues with a lock, or that wait for each other: the harness must convict them. */
#ifndef TESTS_SUSPEND_CONTROL_H
#define TESTS_SUSPEND_CONTROL_H

/* The names of all, or NULL: one of them passed (it is printed which). */
const char *controls_run(void);

#endif
