// SPDX-License-Identifier: Apache-2.0
/*
 * tracing - a trace for a viewer, and a recording for pawl replay.
 *
 * A trace keeps the last events of each thread, and is written as JSON, which ui.perfetto.dev
 * opens.  A recording has every op with its data; pawl record shows it, and pawl replay runs it
 * again.  Both can be started and stopped while the engine works.
 *
 *	tracing [FOLDER]	write trace.json and ops.pawl there; without it they are removed
 */
#include <errno.h>
#include <pawl/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int work(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg += 1;
	return 0;
}

int main(int argc, char **argv)
{
	char own[] = "/tmp/pawl-tracing-XXXXXX", trace[256], record[256];
	const char *folder = argc > 1 ? argv[1] : mkdtemp(own);
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_engine *e;
	pawl_var_t v;
	int n = 0, i, rc;

	if (!folder)
		return 1;
	snprintf(trace, sizeof(trace), "%s/trace.json", folder);
	snprintf(record, sizeof(record), "%s/ops.pawl", folder);
	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &v))
		goto err;
	/* -ENOSYS: the library was built without traces, or without recordings. */
	rc = pawl_trace_start(e, 1024);
	if (rc && rc != -ENOSYS)
		goto err;
	rc = pawl_record_start(record);
	if (rc && rc != -ENOSYS)
		goto err;
	op.fn = work;
	op.arg = &n;
	op.name = "work";
	op.writes = &v;
	op.nwrites = 1;
	for (i = 0; i < 100; i++)
		if (pawl_push(e, &op))
			goto err;
	if (pawl_wait_all(e, -1, NULL))
		goto err;
	rc = pawl_record_stop();
	if (rc && rc != -ENOSYS)
		goto err;
	rc = pawl_trace_stop(e);
	if (!rc)
		rc = pawl_trace_write(e, trace);
	if (rc && rc != -ENOSYS)
		goto err;
	printf("%d ops; %s\n", n, rc ? "built without traces" : trace);
	if (argc == 1) {
		unlink(trace);
		unlink(record);
		rmdir(folder);
	}
	return pawl_engine_destroy(e) || n != 100;
err:
	fprintf(stderr, "tracing: %s\n", pawl_error_text());
	return 1;
}
