// SPDX-License-Identifier: Apache-2.0
/*
 * Insight for a host that monitors: the statistics of a queue.
 *
 * Progress: wait-free.  Only loads, in the caller's thread; nobody is stopped.
 */
#include <core/device.h>
#include <core/sizes.h>

int pawl_queue_stats(struct pawl_engine *e, struct pawl_device device, unsigned int prop,
		     struct pawl_queue_stats *out)
{
	struct pawl_queue_stats s = { .size = sizeof(s) };
	struct exec_queue_stats xs;
	u32 i, dev = op_device(e, device);
	int rc = size_check_out("queue_stats: out", out, QUEUE_STATS_SIZE_0);

	if (rc)
		return rc;
	if (device.kind == PAWL_CPU ? device.id >= e->ndev : !dev)
		return err(-ENODEV, "queue_stats: no device of kind %u, number %u in this engine",
			   device.kind, device.id);
	if (prop > PAWL_NO_SKIP)
		return err(-EINVAL, "queue_stats: prop is %u, the largest is %u", prop, PAWL_NO_SKIP);
	BUILD_BUG_ON(ARRAY_SIZE(xs.wait) != PAWL_WAIT_BUCKETS);
	exec_queue_stats(e->routes[dev * 8u + prop], &xs);
	s.name = xs.name;
	s.number = xs.number;
	s.workers = xs.workers;
	s.depth = xs.depth;
	s.pushed = xs.pushed;
	s.taken = xs.pushed - xs.depth;
	s.wait_ns = xs.wait_ns;
	for (i = 0; i < PAWL_WAIT_BUCKETS; i++) {
		s.wait[i] = xs.wait[i];
		s.waits += xs.wait[i];
	}
	size_copy_out(out, &s, sizeof(s));
	return 0;
}
PAWL_EXPORT(pawl_queue_stats);
