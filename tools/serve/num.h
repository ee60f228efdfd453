/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text (num.cc). */
#ifndef SERVE_NUM_H
#define SERVE_NUM_H

#include <stdbool.h>

#define NUM_MAX 32	/* bytes of a text */

#ifdef __cplusplus
extern "C" {
#endif
/* Write the shortest text that is read back as the same number.  Returns its end. */
char *num_float(char *to, float f);
char *num_double(char *to, double d);
/* Read a number of JSON's grammar; false if it is too large or too small for a double. */
bool num_read(const char *p, const char *end, double *d);
#ifdef __cplusplus
}
#endif

#endif
