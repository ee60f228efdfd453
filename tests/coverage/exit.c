// SPDX-License-Identifier: Apache-2.0
/* With CONFIG_COVERAGE: a child of fork() that ends by _exit() writes its counters too. */
#include <unistd.h>

void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));

void __wrap__exit(int status)
{
	__gcov_dump();
	__real__exit(status);
}
