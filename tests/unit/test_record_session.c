// SPDX-License-Identifier: Apache-2.0
/*
 * core/record.c: when a recording begins and ends, which other programs may use its file
 * meanwhile, and events that are rare in a program: refused pushes, lost events, many names.
 */
#include "recordings.h"
#include <core/engine.h>
#include <core/op.h>
#include "child.h"
#include "trap.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

static size_t size_of(const char *path)
{
	struct stat st;

	MUST(!stat(path, &st));
	return (size_t)st.st_size;
}

/* --- memory that is refused: the library's malloc() is this one (tests/Makefile) --- */

static bool no_memory;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_malloc(size_t n)
{
	return no_memory ? NULL : __real_malloc(n);
}

/* The events of a thread without memory for them are counted, for this recording alone. */
START_TEST(test_lost_events_are_counted)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char *path = temp_path();
	pawl_var_t v = var_new(e);
	struct recording r;
	int round, rc;

	OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (round = 0; round < 2; round++) {
		OK(pawl_record_start(path));
		no_memory = !round;
		rc = push_write(e, nothing, NULL, v);
		no_memory = false;
		OK(rc);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_record_stop());
		load(path, &r);
		ck_assert(r.ended);
		ck_assert_uint_eq(r.lost, !round);
		ck_assert_uint_eq(r.nops, round);
		rec_free(&r);
	}
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

/* --- the file --- */

/* What another recording writes stays as it is. */
START_TEST(test_a_file_in_use_is_not_changed)
{
	char *path = temp_path();
	int fd = open(path, O_RDWR);

	ck_assert(fd >= 0 && !flock(fd, LOCK_EX) && write(fd, "theirs", 6) == 6);
	FAILS(pawl_record_start(path), -EBUSY, path);
	ck_assert_uint_eq(size_of(path), 6);
	close(fd);
	OK(pawl_record_start(path));
	OK(pawl_record_stop());
	unlink(path);
}
END_TEST

START_TEST(test_a_pipe_is_refused_at_once)
{
	char *path = temp_path();
	int fd;

	unlink(path);
	MUST(!mkfifo(path, 0600));
	FAILS(pawl_record_start(path), -ENXIO, path);
	fd = open(path, O_RDONLY | O_NONBLOCK);
	FAILS(pawl_record_start(path), -EINVAL, "regular");
	close(fd);
	unlink(path);
}
END_TEST

/* The descriptors of the process that are this file: their flags, or -1 if there is none. */
static int flags_of(const char *path)
{
	struct stat want, st;
	int fd, found = -1;

	MUST(!stat(path, &want));
	for (fd = 3; fd < 256; fd++) {
		if (fstat(fd, &st) || st.st_dev != want.st_dev || st.st_ino != want.st_ino)
			continue;
		MUST(found < 0);
		found = fcntl(fd, F_GETFD);
	}
	return found;
}

/* Neither a child of fork() nor a program that it starts keeps the file locked. */
START_TEST(test_children_do_not_keep_the_file)
{
	char *path = temp_path(), c;
	int go[2];
	pid_t pid;

	OK(pawl_record_start(path));
	ck_assert_int_eq(flags_of(path), FD_CLOEXEC);
	MUST(!pipe(go));
	pid = child_fork();
	if (!pid) {
		close(go[1]);
		MUST(read(go[0], &c, 1) == 0);	/* until the parent has closed it */
		_exit(0);
	}
	close(go[0]);
	OK(pawl_record_stop());
	ck_assert_int_eq(flags_of(path), -1);
	/* The child lets go of it when it runs. */
	ck_assert(soon(!pawl_record_start(path)));
	OK(pawl_record_stop());
	close(go[1]);
	ck_assert_int_eq(child_wait(pid), 0);
	unlink(path);
}
END_TEST

struct recorder {
	struct pawl_engine *e;
	u32 recorded, end;	/* A */
};

static void *records_and_stays(void *arg)
{
	struct recorder *r = arg;

	MUST(!push_write(r->e, nothing, NULL, var_new(r->e)));
	store_release(&r->recorded, 1);
	MUST(soon(load_acquire(&r->end)));
	return NULL;
}

START_TEST(test_a_child_whose_parents_threads_recorded_cannot_record)
{
	char *path = temp_path();
	struct recorder r = { .e = engine(PAWL_PER_DEVICE, 0) };
	pthread_t t;
	pid_t pid;

	if (SANITIZED)
		goto out;	/* a child with threads */
	OK(pawl_record_start(path));
	t = spawn(records_and_stays, &r);
	MUST(soon(load_acquire(&r.recorded)));
	OK(pawl_record_stop());
	pid = child_fork();
	if (!pid) {
		MUST(pawl_record_start(path) == -EOWNERDEAD);
		_exit(0);
	}
	ck_assert_int_eq(child_wait(pid), 0);
	OK(pawl_record_start(path));
	OK(pawl_record_stop());
	store_release(&r.end, 1);
	join(t);
out:
	OK(pawl_engine_destroy(r.e));
	unlink(path);
}
END_TEST

/* A child of fork() leaves the parent's recording alone. */
START_TEST(test_fork)
{
	char *path = temp_path();
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct recording r;
	pid_t pid;
	int i;

	if (SANITIZED)
		goto out;	/* a child with threads, which sanitizers refuse or take long
				   to create */
	OK(pawl_record_start(path));
	for (i = 0; i < 100; i++)
		OK(push_write(e, nothing, NULL, v));
	pid = child_fork();
	if (!pid) {
		struct pawl_engine *mine;

		/*
		 * Its own engine is not in the file, and the end of the child does not end it.
		 */
		if (pawl_engine_create(NULL, &mine) ||
		    push_write(mine, nothing, NULL, var_new(mine)) ||
		    pawl_wait_all(mine, -1, NULL) || pawl_engine_destroy(mine) ||
		    pawl_record_stop() != -EALREADY)
			_exit(1);
		/* The latter, if no other thread had recorded when it was forked. */
		i = pawl_record_start(path);
		if (i != -EOWNERDEAD && i != -EBUSY)
			_exit(2);
		exit(pawl_engine_destroy(e));
	}
	ck_assert_int_eq(child_wait(pid), 0);
	for (i = 0; i < 100; i++)
		OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert(r.ended);
	ck_assert_uint_eq(r.nengines, 1);
	ck_assert_uint_eq(r.nops, 200);
	rec_free(&r);
out:
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

/* A full disk: the ops continue, stop returns the error, and the file so far can be read. */
START_TEST(test_disk_full)
{
	struct rlimit was, limit;
	char *path = temp_path();
	struct pawl_engine *e;
	struct recording r;
	pawl_var_t v;
	int i, rc;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	limit = was;
	limit.rlim_cur = 200000;
	setrlimit(RLIMIT_FSIZE, &limit);
	MUST(!pawl_record_start(path));
	e = engine(PAWL_PER_DEVICE, 0);
	v = var_new(e);
	for (i = 0; i < 50000; i++)
		MUST(!push_write(e, nothing, NULL, v));	/* Check's own file has the limit, too */
	MUST(!pawl_wait_all(e, -1, NULL));
	MUST(version(e, v) == 50000);
	OK(pawl_engine_destroy(e));
	rc = pawl_record_stop();
	setrlimit(RLIMIT_FSIZE, &was);
	signal(SIGXFSZ, SIG_DFL);
	ck_assert_msg(rc == -ENOSPC || rc == -EFBIG, "%d", rc);
	says("stop", (const char *const[]){ "not complete", NULL });
	load(path, &r);
	ck_assert(!r.ended);
	ck_assert_uint_gt(r.nops, 1000);
	rec_free(&r);
	/* The next recording does not know of it. */
	OK(pawl_record_start(path));
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert(r.ended);
	rec_free(&r);
	unlink(path);
}
END_TEST

/* A write of the recording that fails is no error of the push in which it is made. */
START_TEST(test_a_push_keeps_errno)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *path = temp_path();
	struct rlimit was, limit;
	int i, rc, kept;

	signal(SIGXFSZ, SIG_IGN);
	MUST(!getrlimit(RLIMIT_FSIZE, &was));
	MUST(!pawl_record_start(path));
	limit = was;
	limit.rlim_cur = size_of(path);
	MUST(!setrlimit(RLIMIT_FSIZE, &limit));
	errno = ENOTTY;
	for (i = 0; i < 10000; i++)
		MUST(!push_write(e, nothing, NULL, v));
	kept = errno;
	MUST(!pawl_wait_all(e, -1, NULL));
	rc = pawl_record_stop();
	MUST(!setrlimit(RLIMIT_FSIZE, &was));
	signal(SIGXFSZ, SIG_DFL);
	ck_assert_int_eq(kept, ENOTTY);
	ck_assert_int_eq(rc, -EFBIG);
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

/* The variable counts once, when the first engine is created. */
START_TEST(test_the_environment_starts_one_recording)
{
	char *path = temp_path();
	struct pawl_engine *e;
	struct recording r;

	setenv("PAWL_RECORD", path, 1);
	if (_i)
		OK(pawl_record_start(path));	/* overrides it */
	e = engine(PAWL_PER_DEVICE, 0);
	FAILS(pawl_record_start(path), -EALREADY);
	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert(r.ended);
	ck_assert_uint_eq(r.nops, 1);
	rec_free(&r);
	OK(pawl_engine_destroy(e));
	e = engine(PAWL_PER_DEVICE, 0);
	FAILS(pawl_record_stop(), -EALREADY);
	OK(pawl_engine_destroy(e));
	unsetenv("PAWL_RECORD");
	unlink(path);
}
END_TEST

/* Engines of before and of during a recording, whichever end before it, and a file for each. */
START_TEST(test_every_engine_is_recorded)
{
	char *path = temp_path();
	struct pawl_engine *e[4];
	struct recording r;
	u32 i, k;

	for (i = 0; i < 4; i++) {
		for (k = 0; k < 3; k++)
			e[k] = engine((int)k, 0);
		OK(pawl_record_start(path));
		e[3] = engine(PAWL_PER_DEVICE, 0);
		for (k = 0; k < 4; k++)
			OK(push_write(e[k], nothing, NULL, var_new(e[k])));
		for (k = 0; k < 4; k++)
			OK(pawl_wait_all(e[k], SOON_NS, NULL));
		OK(pawl_engine_destroy(e[i]));
		OK(pawl_record_stop());
		load(path, &r);
		ck_assert(r.ended);
		ck_assert_uint_eq(r.nengines, 4);
		ck_assert_uint_eq(r.nops, 4);
		ck_assert_uint_eq(r.pid, (u32)getpid());
		/* time() may be behind the clock of the recording by a tick. */
		ck_assert_uint_le((u64)(time(NULL) + 1 - r.started), 3600);
		rec_free(&r);
		/* And one without the engine that has gone. */
		OK(pawl_record_start(path));
		for (k = 0; k < 4; k++)
			if (k != i)
				OK(push_write(e[k], nothing, NULL, var_new(e[k])));
		for (k = 0; k < 4; k++)
			if (k != i)
				OK(pawl_wait_all(e[k], SOON_NS, NULL));
		OK(pawl_record_stop());
		load(path, &r);
		ck_assert_uint_eq(r.nengines, 3);
		ck_assert_uint_eq(r.nops, 3);
		rec_free(&r);
		for (k = 0; k < 4; k++)
			if (k != i)
				OK(pawl_engine_destroy(e[k]));
	}
	unlink(path);
}
END_TEST

/* The engine's configuration, the program, and the format, as Documentation/record.md says. */
START_TEST(test_what_a_recording_says_of_its_engines)
{
	struct pawl_config c = small(PAWL_POOLED, 3);
	const u32 want[] = { PAWL_POOLED, 3, 5, 2, 4, 1000, 2000 };
	char *path = temp_path();
	const unsigned char *head;
	struct pawl_engine *e;
	unsigned char *data;
	struct recording r;
	size_t len;
	u32 i;

	c.priority_workers = 5;
	c.copy_workers = 2;
	c.cpu_devices = 4;
	c.max_ops = 1000;
	c.max_vars = 2000;
	c.name = "mine";
	OK(pawl_record_start(path));
	e = engine_with(&c);
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert_uint_eq(r.version, REC_VERSION);
	ck_assert_str_eq(r.program, program_invocation_short_name);
	rec_free(&r);
	data = contents(path, &len);
	head = chunk(data, len, REC_CHUNK_ENGINE, 0);
	ck_assert_ptr_nonnull(head);
	head += REC_HEAD;
	for (i = 0; i < COUNT(want); i++, head += 4)
		ck_assert_uint_eq(get_le32(head), want[i]);
	ck_assert(head[0] == 4 && !memcmp(head + 1, "mine", 4));
	free(data);
}
END_TEST

/* Neither engines, their names and threads, nor starts that are refused. */
START_TEST(test_recordings_leave_nothing_behind)
{
	char *path = temp_path();
	int fd, next = dup(STDERR_FILENO);
	size_t before;
	u32 i;

	close(next);
	/* The allocator keeps some memory itself, but not each time. */
	for (i = 0; ; i++) {
		struct pawl_engine *e[2];

		MUST(i < 100);
		before = heap_used();
		e[0] = engine(PAWL_PER_DEVICE, 0);
		OK(pawl_record_start(path));
		e[1] = engine(PAWL_PER_DEVICE, 0);
		OK(push_write(e[0], nothing, NULL, var_new(e[0])));
		OK(push_write(e[1], nothing, NULL, var_new(e[1])));
		OK(pawl_wait_all(e[0], SOON_NS, NULL));
		OK(pawl_wait_all(e[1], SOON_NS, NULL));
		OK(pawl_engine_destroy(e[1]));
		OK(pawl_record_stop());
		FAILS(pawl_record_start("/dev/null"), -EINVAL, "regular");
		fd = open(path, O_RDWR);
		MUST(fd >= 0 && !flock(fd, LOCK_EX));
		FAILS(pawl_record_start(path), -EBUSY, path);
		close(fd);
		OK(pawl_engine_destroy(e[0]));
		if (i && heap_used() <= before)
			break;
	}
	fd = dup(STDERR_FILENO);
	ck_assert_int_eq(fd, next);
	close(fd);
	unlink(path);
}
END_TEST

#ifdef CONFIG_TRACE
static u32 times(const unsigned char *data, size_t len, const char *what)
{
	const unsigned char *p = data;
	u32 n = 0;

	for (; (p = memmem(p, len - (size_t)(p - data), what, strlen(what))); p++)
		n++;
	return n;
}

static void count_push(struct pawl_engine *e, const char *name, u32 *n, bool at_once)
{
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_write(add_one, n, &v);
	u32 was = *n;

	op.name = name;
	OK(pawl_push(e, &op));
	if (at_once)
		ck_assert_uint_eq(*n, was + 1);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(*n, was + 1);
}

/*
 * A trace and a recording begin and end in any order, without an effect on each other or on when
 * a naive engine runs its ops.
 */
START_TEST(test_a_trace_beside_a_recording)
{
	static const char *const names[] = { "first", "both", "one of them", "none" };
	char *paths[2] = { strdup(temp_path()), strdup(temp_path()) };
	int kind, order;

	for (kind = 0; kind <= PAWL_NAIVE; kind++) {
		for (order = 0; order < 4; order++) {
			bool trace_first = order & 1, trace_last = order & 2;
			struct pawl_engine *e = engine(kind, 0);
			u32 n = 0, i, recorded;
			unsigned char *data;
			struct recording r;
			size_t len;

			OK(trace_first ? pawl_trace_start(e, 100) : pawl_record_start(paths[0]));
			count_push(e, names[0], &n, kind == PAWL_NAIVE);
			OK(trace_first ? pawl_record_start(paths[0]) : pawl_trace_start(e, 100));
			count_push(e, names[1], &n, kind == PAWL_NAIVE);
			OK(trace_last ? pawl_record_stop() : pawl_trace_stop(e));
			count_push(e, names[2], &n, kind == PAWL_NAIVE);
			OK(trace_last ? pawl_trace_stop(e) : pawl_record_stop());
			count_push(e, names[3], &n, kind == PAWL_NAIVE);
			load(paths[0], &r);
			recorded = 1 + !trace_first + !trace_last;
			ck_assert(r.ended && r.nops == recorded);
			for (i = 0; i < recorded; i++)
				ck_assert_str_eq(r.ops[i].name, names[i + trace_first]);
			rec_free(&r);
			OK(pawl_trace_write(e, paths[1]));
			data = contents(paths[1], &len);
			for (i = 0; i < 4; i++)
				ck_assert_uint_eq(times(data, len, names[i]),
						  i == 1 || (!i && trace_first) ||
						  (i == 2 && trace_last));
			free(data);
			OK(pawl_engine_destroy(e));
		}
	}
	unlink(paths[0]);
	free(paths[0]);
	free(paths[1]);
}
END_TEST
#endif

static int no_thread(void *user, void *(*fn)(void *arg), void *arg, void **thread)
{
	return -EAGAIN;
}

static void no_join(void *user, void *thread)
{
	MUST(false);
}

/* No recording has an engine whose workers could not be started. */
START_TEST(test_an_engine_that_is_not_created_is_not_recorded)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	char *path = temp_path();
	struct pawl_engine *e;
	struct recording r;

	c.thread_create = no_thread;
	c.thread_join = no_join;
	c.start_workers = true;
	FAILS(pawl_engine_create(&c, &e), -EAGAIN, "worker");
	OK(pawl_record_start(path));
	e = engine(PAWL_PER_DEVICE, 0);
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert_uint_eq(r.nengines, 1);
	rec_free(&r);
	unlink(path);
}
END_TEST

/* --- events --- */

/* The number of an op's run begins again at 1. */
START_TEST(test_the_runs_of_an_op_are_counted_again_from_one)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char *path = temp_path();
	struct recording r;
	pawl_var_t v = var_new(e);
	u32 i;

	OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 1; i <= pool_carved(e->pool[POOL_OP]); i++)
		store_relaxed(&op_of(e, i)->token, 0x3ffffffbu << 2 | TOKEN_DONE);
	OK(pawl_record_start(path));
	for (i = 0; i < 8; i++) {
		OK(push_write(e, nothing, NULL, v));
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert(r.ended && r.nops == 8 && !r.foreign);
	for (i = 0; i < 8; i++)
		ck_assert(r.ops[i].begun && r.ops[i].ended);
	rec_free(&r);
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

/* A crash costs no more than the events of the last second. */
START_TEST(test_events_of_more_than_a_second_ago_are_in_the_file)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *path = temp_path();
	struct recording r;
	size_t was;

	OK(pawl_record_start(path));
	was = size_of(path);
	OK(push_write(e, nothing, NULL, v));
	ck_assert_uint_eq(size_of(path), was);
	ck_assert(soon((nap_us(20000), !push_write(e, nothing, NULL, v)) &&
		       size_of(path) > was));
	/* Not with every event from there on. */
	ck_assert(soon((was = size_of(path), !push_write(e, nothing, NULL, v)) &&
		       size_of(path) == was));
	load(path, &r);
	ck_assert(!r.ended);
	ck_assert_uint_gt(r.nops, 0);
	rec_free(&r);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_record_stop());
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

/* More names than a thread remembers, and more than fit in a buffer; a long one is cut. */
START_TEST(test_every_op_has_its_name)
{
	enum { NAMES = 400, ROUNDS = 2 };
	static char name[NAMES][300];
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	char *path = temp_path();
	struct pawl_op op = op_write(nothing, NULL, &v);
	struct recording r;
	size_t len;
	u32 i;

	OK(pawl_record_start(path));
	for (i = 0; i < NAMES * ROUNDS; i++) {
		u32 k = i % NAMES;

		len = k % 3 ? k % 290 : 299;
		memset(name[k], 'a' + (int)(k % 26), len);
		op.name = name[k];
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert(r.ended);
	ck_assert_uint_eq(r.nops, NAMES * ROUNDS);
	for (i = 0; i < r.nops; i++) {
		len = strlen(name[i % NAMES]);
		ck_assert_uint_eq(strlen(r.ops[i].name), len < 255 ? len : 255);
		ck_assert(!strncmp(r.ops[i].name, name[i % NAMES], 255));
	}
	rec_free(&r);
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

static int waits(struct pawl_run *run, void *arg)
{
	MUST(!pawl_wait_readable(run->engine, *(pawl_var_t *)arg, SOON_NS, NULL));
	return 0;
}

/* A wait that runs a body which waits, one for a write, and one that ends without it. */
START_TEST(test_every_wait_has_its_end)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e);
	char *path = temp_path();
	struct recording r;
	struct gate g;

	OK(pawl_record_start(path));
	OK(push_write(e, waits, &w, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	gate_write(e, &g, w);
	FAILS(pawl_wait_writable(e, w, 1, NULL), -ETIMEDOUT, "");
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_record_stop());
	load(path, &r);
	ck_assert_uint_eq(r.nwaits, 4);
	ck_assert(r.waits[0].var == REC_NONE && r.waits[0].ended && !r.waits[0].status);
	ck_assert(r.waits[1].ended && !r.waits[1].status && !r.waits[1].write);
	ck_assert_uint_ge(r.waits[0].end, r.waits[1].end);
	ck_assert(r.waits[2].ended && r.waits[2].status == -ETIMEDOUT && r.waits[2].write);
	ck_assert_uint_eq(r.waits[1].var, r.waits[2].var);
	ck_assert_uint_ne(r.waits[1].var, r.accesses[r.ops[0].access].var);
	rec_free(&r);
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

#if CAN_TRAP
static struct {
	struct pawl_engine *e;
	pawl_var_t v;
} deleter;

static void delete_now(void)
{
	MUST(!pawl_var_delete(deleter.e, deleter.v, NULL, NULL));
}

/*
 * A var that an op names is deleted somewhere inside the push: the op is refused, or runs at
 * its positions of both vars, or does not run and has a position of the other var alone.
 */
static void push_and_delete(bool with_other, bool graph)
{
	enum { PLACES = 16 };
	pawl_graph_t g = { 0 };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[2] = { var_new(e) };
	struct pawl_op op = op_of_fn(nothing, NULL);
	char *path = temp_path();
	long at, all = 0;
	u32 k, refused = 0, undone = 0, stale = 0, version = 0;
	struct recording r;
	size_t i, n;

	deleter.e = e;
	OK(push_write(e, nothing, NULL, v[0]));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_record_start(path));
	elsewhere_begin(delete_now);
	op.writes = with_other ? v : v + 1;
	op.nwrites = with_other ? 2 : 1;
	/* The first call counts the instructions. */
	for (k = 0; k <= PLACES; k++) {
		int rc;

		v[1] = deleter.v = var_new(e);
		at = k ? all * (k - 1) / PLACES : LONG_MAX;
		if (graph) {
			OK(pawl_graph_create(e, &op, 1, 0, &g));
			trap_after(at, rc = pawl_graph_push(e, g, NULL));
			OK(pawl_graph_delete(e, g));
		} else {
			trap_after(at, rc = pawl_push(e, &op));
		}
		all = k ? all : trap.ran;
		MUST(!rc || rc == -ESTALE);
		refused += rc != 0;
		if (!trap.stops)
			OK(pawl_var_delete(e, v[1], NULL, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
	}
	elsewhere_end();
	OK(pawl_record_stop());
	OK(pawl_engine_destroy(e));
	load(path, &r);
	ck_assert(r.ended && !r.lost);
	free(order_of(&r, &n));
	for (i = 0; i < r.nops; i++) {
		const struct rec_op *o = &r.ops[i];
		const struct rec_access *a = &r.accesses[o->access];

		undone += o->undone;
		ck_assert_uint_eq(o->begun, !o->undone);
		if (o->ends || o->undone)
			continue;
		ck_assert(o->ended);
		ck_assert_uint_eq(o->naccesses, with_other ? 2 : 1);
		if (with_other) {
			ck_assert(a->placed);
			ck_assert_uint_eq(a->version, 1 + version++);
			a++;
		}
		stale += !a->placed;
		ck_assert_int_eq(o->status, a->placed ? 0 : -ESTALE);
	}
	ck_assert_uint_le(undone, refused);
	ck_assert_uint_gt(with_other ? stale : undone, 0);
	rec_free(&r);
	unlink(path);
}
#endif

START_TEST(test_a_push_whose_var_is_deleted_meanwhile)
{
#if CAN_TRAP
	push_and_delete(_i & 1, _i & 2);
#endif
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("record_session");
	TCase *t = tcase_create("record_session");

	tcase_set_timeout(t, 50);
	/* The variable is read once per process, and with a sanitizer all tests are in one. */
	tcase_add_loop_test(t, test_the_environment_starts_one_recording, 0, 2);
	tcase_add_test(t, test_lost_events_are_counted);
	tcase_add_test(t, test_a_file_in_use_is_not_changed);
	tcase_add_test(t, test_a_pipe_is_refused_at_once);
	tcase_add_test(t, test_children_do_not_keep_the_file);
	tcase_add_test(t, test_a_child_whose_parents_threads_recorded_cannot_record);
	tcase_add_test(t, test_fork);
	tcase_add_test(t, test_disk_full);
	tcase_add_test(t, test_a_push_keeps_errno);
	tcase_add_test(t, test_every_engine_is_recorded);
	tcase_add_test(t, test_what_a_recording_says_of_its_engines);
	tcase_add_test(t, test_an_engine_that_is_not_created_is_not_recorded);
	tcase_add_test(t, test_recordings_leave_nothing_behind);
#ifdef CONFIG_TRACE
	tcase_add_test(t, test_a_trace_beside_a_recording);
#endif
	tcase_add_test(t, test_the_runs_of_an_op_are_counted_again_from_one);
	tcase_add_test(t, test_events_of_more_than_a_second_ago_are_in_the_file);
	tcase_add_test(t, test_every_op_has_its_name);
	tcase_add_test(t, test_every_wait_has_its_end);
	tcase_add_loop_test(t, test_a_push_whose_var_is_deleted_meanwhile, 0, 4);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
