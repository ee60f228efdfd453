/* SPDX-License-Identifier: Apache-2.0 */
/* What the modelled program calls instead of the C library's functions; see shim.h. */
#ifndef MODEL_LIBC_H
#define MODEL_LIBC_H

#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

void *model_malloc(size_t n);
void *model_realloc(void *p, size_t n);
void model_free(void *p);
void model_munmap(void *p, size_t n);
void *model_mmap(size_t n);
void *model_memset(void *p, int c, size_t n);
void *model_memcpy(void *to, const void *from, size_t n);
int model_mprotect(void *p, size_t n);
void *model_mremap(void *p, size_t from, size_t to);
int model_mincore(void *p, size_t n, unsigned char *in);
int model_madvise(void *p, size_t n);
char *model_strncpy(char *to, const char *from, size_t n);
int model_snprintf(char *to, size_t n, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int model_vsnprintf(char *to, size_t n, const char *fmt, va_list ap);
#define MODEL_EVENT_FD	1000000
int model_eventfd(void);
ssize_t model_write(int fd, const void *from, size_t n);
ssize_t model_read(int fd, void *to, size_t n);
void model_abort(void) __attribute__((noreturn));

#endif
