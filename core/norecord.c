// SPDX-License-Identifier: Apache-2.0
/* The recording calls of a build without CONFIG_RECORD. */
#include <core/engine.h>

int pawl_record_start(const char *path)
{
	return err(-ENOSYS, "record_start: built without CONFIG_RECORD");
}
PAWL_EXPORT(pawl_record_start);

int pawl_record_stop(void)
{
	return err(-ENOSYS, "record_stop: built without CONFIG_RECORD");
}
PAWL_EXPORT(pawl_record_stop);
