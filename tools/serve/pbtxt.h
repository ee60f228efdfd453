/* SPDX-License-Identifier: Apache-2.0 */
/* A message of protobuf as text, such as Triton's config.pbtxt. */
#ifndef SERVE_PBTXT_H
#define SERVE_PBTXT_H

#include <stddef.h>

/* A field; one that is repeated is there several times. */
struct pbtxt {
	struct pbtxt *next;
	struct pbtxt *first;		/* fields of a message */
	char *value;			/* of a scalar, without quotes; NULL: a message */
	unsigned int line;
	char name[];
};

/*
 * Read a file.  Returns 0, or a negative errno with a text in err: -ENOENT, -EINVAL (it is no
 * such text), -E2BIG, -ENOMEM.  *out may be NULL: the message is empty.
 */
int pbtxt_read(const char *path, struct pbtxt **out, char *err, size_t size);
void pbtxt_free(struct pbtxt *fields);

#endif
