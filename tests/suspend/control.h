/* SPDX-License-Identifier: Apache-2.0 */
/* Queues that lock, or wait for another thread's call; the harness must convict them. */
#ifndef TESTS_SUSPEND_CONTROL_H
#define TESTS_SUSPEND_CONTROL_H

/* Return all names, or NULL after printing the name of one that passed. */
const char *controls_run(void);

#endif
