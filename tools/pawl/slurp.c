// SPDX-License-Identifier: Apache-2.0
/* Reads a file into memory, and formats the message that goes with a negative errno. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "slurp.h"

int file_err(char *buf, size_t buflen, int code, const char *fmt, ...)
{
	va_list ap;
	char *p;

	if (!buf || !buflen)
		return code;
	va_start(ap, fmt);
	vsnprintf(buf, buflen, fmt, ap);
	va_end(ap);
	for (p = buf; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return code;
}

int file_slurp(const char *path, size_t max, void **data, size_t *len,
	       char *err, size_t errlen)
{
	unsigned char *buf;
	struct stat st;
	size_t size, got = 0;
	ssize_t n;
	int fd, rc;

	/* O_NONBLOCK: a FIFO must be refused below, not waited for here. */
	do {
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0) {
		rc = -errno;
		return file_err(err, errlen, rc, "%s: cannot open: %s", path, strerror(-rc));
	}
	if (fstat(fd, &st)) {
		rc = -errno;
		close(fd);
		return file_err(err, errlen, rc, "%s: cannot stat: %s", path, strerror(-rc));
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return file_err(err, errlen, -EINVAL, "%s: not a regular file", path);
	}
	if (st.st_size < 0 || (uintmax_t)st.st_size > max) {
		close(fd);
		return file_err(err, errlen, -EFBIG, "%s: %jd bytes, more than the limit of %zu",
				path, (intmax_t)st.st_size, max);
	}
	size = (size_t)st.st_size;
	buf = malloc(size ? size : 1);
	if (!buf) {
		close(fd);
		return file_err(err, errlen, -ENOMEM, "%s: no memory for %zu bytes", path, size);
	}
	while (got < size) {
		n = read(fd, buf + got, size - got);
		if (n <= 0) {
			rc = n ? -errno : -EIO;
			file_err(err, errlen, rc, "%s: offset %zu: %s", path, got,
				 n ? strerror(-rc) : "the file shrank while it was read");
			free(buf);
			close(fd);
			return rc;
		}
		got += (size_t)n;
	}
	close(fd);
	*data = buf;
	*len = size;
	return 0;
}
