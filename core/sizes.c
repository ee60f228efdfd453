// SPDX-License-Identifier: Apache-2.0
/* Structs of programs that were built with another release's header; see sizes.h. */
#include <core/engine.h>
#include <core/sizes.h>

/* No struct will be longer: a larger size is one that was never set. */
#define SIZE_LIMIT	4096u

/* Progress: wait-free. */
int size_check_out(const char *who, const void *given, size_t first)
{
	size_t size = given ? *(const size_t *)given : 0;

	if (!given)
		return err(-EINVAL, "%s is NULL, its size cannot be read", who);
	if (size < first)
		return err(-EINVAL, "%s.size is %zu, the first release had %zu", who, size, first);
	if (size > SIZE_LIMIT)
		return err(-EINVAL, "%s.size is %zu, no release has more than %u", who, size,
			   SIZE_LIMIT);
	return 0;
}

/* Progress: wait-free. */
int size_check(const char *who, const void *given, size_t first, size_t now)
{
	const char *p = given;
	int rc = size_check_out(who, given, first);
	size_t i;

	if (rc)
		return rc;
	for (i = now; i < *(const size_t *)given; i++)
		if (p[i])
			return err(-EINVAL,
				   "%s.size is %zu, this library knows %zu bytes, and byte %zu is not 0",
				   who, *(const size_t *)given, now, i);
	return 0;
}

/* Progress: wait-free. */
void size_copy_out(void *given, void *from, size_t now)
{
	size_t size = *(size_t *)given;

	memset(given, 0, size);
	*(size_t *)from = size;
	memcpy(given, from, size < now ? size : now);
}
