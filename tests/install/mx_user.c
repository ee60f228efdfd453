/* SPDX-License-Identifier: Apache-2.0 */
/* A user of libpawl_mx in C. */
#include <pawl/mx_c_api.h>
#include <stdio.h>

static void twice(void *run, void *param)
{
	int *n = param;

	(void)run;
	*n *= 2;
}

int main(void)
{
	const struct pawl_mx_context cpu = { PAWL_MX_CPU, 0 };
	const uint32_t shape[] = { 2 };
	NDArrayHandle nd;
	int n = 21;

	if (MXNDArrayCreate(shape, 1, cpu.dev_type, cpu.dev_id, 0, &nd) ||
	    MXEnginePushSyncND(twice, &n, NULL, &cpu, NULL, 0, &nd, 1, NULL, 0, "twice") ||
	    MXNDArrayWaitToRead(nd) || MXNDArrayFree(nd)) {
		fprintf(stderr, "%s\n", MXGetLastError());
		return 1;
	}
	printf("%d\n", n);
	return n != 42;
}
