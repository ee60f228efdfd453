// SPDX-License-Identifier: Apache-2.0
/* The trace calls of a build without CONFIG_TRACE. */
#include <core/engine.h>

int pawl_trace_start(struct pawl_engine *e, unsigned int n)
{
	return err(-ENOSYS, "trace_start: built without CONFIG_TRACE");
}
PAWL_EXPORT(pawl_trace_start);

int pawl_trace_stop(struct pawl_engine *e)
{
	return err(-ENOSYS, "trace_stop: built without CONFIG_TRACE");
}
PAWL_EXPORT(pawl_trace_stop);

int pawl_trace_write(struct pawl_engine *e, const char *path)
{
	return err(-ENOSYS, "trace_write: built without CONFIG_TRACE");
}
PAWL_EXPORT(pawl_trace_write);
