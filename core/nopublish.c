// SPDX-License-Identifier: Apache-2.0
/* The call of a build without CONFIG_PUBLISH. */
#include <core/engine.h>

int pawl_publish(bool on)
{
	return on ? err(-ENOSYS, "publish: built without CONFIG_PUBLISH") : 0;
}
PAWL_EXPORT(pawl_publish);
