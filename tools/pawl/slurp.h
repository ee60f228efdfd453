/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of the file readers: a file in memory, little-endian fields, and the message that
 * goes with a negative errno.
 */
#ifndef PAWL_SLURP_H
#define PAWL_SLURP_H

#include <stddef.h>
#include <stdint.h>

/*
 * Store a message in buf (unless it is NULL) and return code.  Names in a message come from
 * files, so control characters are replaced by '?'.
 */
int file_err(char *buf, size_t buflen, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Read a regular file of at most max bytes.  The caller frees *data, which is not NULL even
 * if the file is empty.  Returns 0 or a negative errno.
 */
int file_slurp(const char *path, size_t max, void **data, size_t *len,
	       char *err, size_t errlen);

static inline uint32_t get_le16(const unsigned char *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static inline uint32_t get_le32(const unsigned char *p)
{
	return get_le16(p) | get_le16(p + 2) << 16;
}

static inline uint64_t get_le64(const unsigned char *p)
{
	return get_le32(p) | (uint64_t)get_le32(p + 4) << 32;
}

#endif
