// SPDX-License-Identifier: Apache-2.0
/*
 * core/dump.c: pawl_dump() prints what is in flight, also while ops are stuck and under load.
 */
#include "util.h"
#include "child.h"
#include <core/engine.h>
#include <core/thread.h>
#include <ctype.h>
#include <fcntl.h>
#include <sys/resource.h>

static char *dump(struct pawl_engine *e)
{
	static char text[1 << 16];
	FILE *f = tmpfile();
	size_t n;

	ck_assert_ptr_nonnull(f);
	OK(pawl_dump(e, fileno(f)));
	rewind(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	fclose(f);
	return text;
}

static void has(const char *text, const char *what)
{
	ck_assert_msg(strstr(text, what), "no \"%s\" in:\n%s", what, text);
}

START_TEST(test_idle)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	int i;

	for (i = 0; i < 7; i++)
		OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	has(dump(e), "0 ops in flight");
	has(dump(e), "7 vars idle");
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stuck)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w = var_new(e), x = var_new(e);
	struct pawl_op op;
	struct gate g, h;
	char name[32];
	char *text;

	gate_write(e, &g, v);
	gate_read(e, &h, w);
	op = op_read(nothing, NULL, &v);
	op.name = "the-\x1b[2Jreader\n\xff";
	OK(pawl_push(e, &op));
	OK(push_write(e, nothing, NULL, w));
	OK(push_write(e, fail_io, NULL, x));
	while (pawl_run_one(e))
		;
	text = dump(e);
	has(text, "4 ops in flight");
	snprintf(name, sizeof(name), "var %u.", (u32)v.h);
	has(text, name);
	snprintf(name, sizeof(name), "var %u.", (u32)w.h);
	has(text, name);
	snprintf(name, sizeof(name), "var %u.", (u32)x.h);
	has(text, name);
	has(text, "write pending");
	has(text, "the-\\u001b[2Jreader\\u000a\xef\xbf\xbd,");	/* no terminal obeys a name */
	has(text, "poisoned");
	has(text, "0 vars idle");
	OK(pawl_var_delete(e, v, NULL, NULL));
	has(dump(e), "deleted");
	gate_open(&g);
	gate_open(&h);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	has(dump(e), "0 ops in flight");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* No var has memory behind it. */
START_TEST(test_the_last_var_is_listed)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char name[32];
	pawl_var_t v;

	do
		v = var_new(e);
	while ((u32)v.h < pool_carved(e->pool[POOL_VAR]));
	OK(push_write(e, nothing, NULL, v));
	snprintf(name, sizeof(name), "var %u.", (u32)v.h);
	has(dump(e), name);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What the header lists: asynchronous ops that are not completed, and waiting threads. */
START_TEST(test_lists_ops)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op;
	struct gate g;
	char *text;

	gate_write(e, &g, v);
	while (!g.running)
		ck_assert_int_eq(pawl_run_one(e), 1);
	op = op_read(nothing, NULL, &v);
	op.name = "reader-waits";
	OK(pawl_push(e, &op));
	text = dump(e);
	has(text, "to be completed");
	has(text, "reader-waits");
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	text = dump(e);
	ck_assert_ptr_null(strstr(text, "reader-waits"));
	ck_assert_ptr_null(strstr(text, "to be completed"));
	OK(pawl_engine_destroy(e));
}
END_TEST

static int body_that_helps(struct pawl_run *run, void *arg)
{
	pawl_var_t *v = arg;

	MUST(!push_write(run->engine, nothing, NULL, *v));
	MUST(!pawl_wait_readable(run->engine, *v, SOON_NS, NULL));
	MUST(strstr(dump(run->engine), "that-helps"));
	return 0;
}

/* It still runs when it has run another op in a wait. */
START_TEST(test_a_body_that_ran_another_one_is_listed)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_op op = op_of_fn(body_that_helps, &v);

	op.name = "that-helps";
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_ptr_null(strstr(dump(e), "that-helps"));
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *all_waiter(void *arg)
{
	MUST(!pawl_wait_all(arg, SOON_NS, NULL));
	return NULL;
}

START_TEST(test_waiter_is_named)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct gate g;
	pthread_t t;

	gate_write(e, &g, var_new(e));
	t = spawn(all_waiter, e);
	ck_assert(soon(strstr(dump(e), "waits until at most 0 ops are in flight\n")));
	gate_open(&g);
	join(t);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_bad_fd)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int fd = open("/dev/null", O_RDONLY);

	/* No text: it may be called in a signal handler, whose thread is about to read one. */
	FAILS(pawl_engine_create(NULL, NULL), -EINVAL, "out");
	errno = ENOTTY;
	FAILS(pawl_dump(e, -1), -EBADF, "out");
	FAILS(pawl_dump(e, fd), -EBADF, "out");
	ck_assert_int_eq(errno, ENOTTY);
	close(fd);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* While everything changes: it returns, and prints something each time. */
struct busy {
	struct pawl_engine *e;
	pawl_var_t v[6];
	u32 stop;	/* A */
};

static void *busy_pusher(void *arg)
{
	struct busy *b = arg;
	u64 seed = 3;

	while (!load_acquire(&b->stop)) {
		pawl_var_t two[2] = { b->v[rnd(&seed) % 6], b->v[rnd(&seed) % 6] };
		pawl_var_t own = var_new(b->e);
		struct pawl_op op = op_of_fn(rnd(&seed) % 9 ? nothing : fail_io, NULL);

		op.writes = two;
		op.nwrites = 2;
		op.reads = &own;
		op.nreads = 1;
		op.name = "busy";
		MUST(!pawl_push(b->e, &op));
		MUST(!pawl_var_delete(b->e, own, NULL, NULL));
		if (rnd(&seed) % 50 == 0)
			pawl_wait_all(b->e, SOON_NS, NULL);
	}
	return NULL;
}

START_TEST(test_while_it_moves)
{
	struct busy b = { .e = engine(PAWL_PER_DEVICE, 1) };
	int i, fd = open("/dev/null", O_WRONLY);
	pthread_t t;

	for (i = 0; i < 6; i++)
		b.v[i] = var_new(b.e);
	t = spawn(busy_pusher, &b);
	for (i = 0; i < TIMES(300); i++)
		OK(pawl_dump(b.e, fd));
	store_release(&b.stop, 1);
	join(t);
	pawl_wait_all(b.e, SOON_NS, NULL);
	close(fd);
	OK(pawl_engine_destroy(b.e));
}
END_TEST

/* --- signal handlers --- */

static struct pawl_engine *handler_engine;
static int handler_fd;
static u32 handled, handler_failed;	/* A */

static void dump_handler(int sig)
{
	if (pawl_dump(handler_engine, handler_fd))
		store_relaxed(&handler_failed, 1);
	fetch_add_relaxed(&handled, 1);
}

static void handler_set(int sig, void (*fn)(int))
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = SA_RESTART };

	sigemptyset(&sa.sa_mask);
	MUST(!sigaction(sig, &sa, NULL));
}

/* The handler interrupts threads inside pushes, deletes, waits and bodies. */
#define HANDLER_PUSHERS 3

START_TEST(test_in_a_signal_handler)
{
	struct busy b = { .e = engine(PAWL_PER_DEVICE, 1) };
	pthread_t t[HANDLER_PUSHERS];
	u32 i, sent = 0;

	for (i = 0; i < 6; i++)
		b.v[i] = var_new(b.e);
	handler_engine = b.e;
	handler_fd = open("/dev/null", O_WRONLY);
	store_relaxed(&handled, 0);
	handler_set(SIGUSR1, dump_handler);
	for (i = 0; i < HANDLER_PUSHERS; i++)
		t[i] = spawn(busy_pusher, &b);
	for (; sent < TIMES(3000); sent++) {
		ck_assert(!pthread_kill(t[sent % HANDLER_PUSHERS], SIGUSR1));
		/* Signals that are not handled yet become one. */
		if (sent % 4 == 3)
			nap_us(100);
	}
	store_release(&b.stop, 1);
	for (i = 0; i < HANDLER_PUSHERS; i++)
		join(t[i]);
	ck_assert_uint_ge(load_relaxed(&handled), 1);
	ck_assert_uint_eq(load_relaxed(&handler_failed), 0);
	handler_set(SIGUSR1, SIG_DFL);
	pawl_wait_all(b.e, SOON_NS, NULL);
	close(handler_fd);
	OK(pawl_engine_destroy(b.e));
}
END_TEST

static void crash_handler(int sig)
{
	_exit(pawl_dump(handler_engine, handler_fd) ? 1 : 42);
}

static int crash(struct pawl_run *run, void *page)
{
	return *(volatile char *)page;
}

/* A body touches a page that may not be read; the handler's last act is the dump. */
START_TEST(test_in_a_crash)
{
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pawl_config c = small(PAWL_PER_DEVICE, SANITIZED ? 0 : 1);
	static char text[1 << 16];
	size_t n = 0;
	int fd[2], status;
	ssize_t got;
	pid_t pid;

	MUST(page != MAP_FAILED && !pipe(fd));
	pid = child_fork();
	if (!pid) {
		struct pawl_engine *e;
		struct pawl_op op = PAWL_OP_INIT;
		pawl_var_t v;

		MUST(!pawl_engine_create(&c, &e) && !pawl_var_create(e, &v));
		handler_engine = e;
		handler_fd = fd[1];
		handler_set(SIGSEGV, crash_handler);
		op.fn = crash;
		op.arg = page;
		op.writes = &v;
		op.nwrites = 1;
		op.name = "the-crash";
		MUST(!pawl_push(e, &op));
		pawl_wait_all(e, SOON_NS, NULL);
		_exit(3);
	}
	close(fd[1]);
	while ((got = read(fd[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	close(fd[0]);
	MUST(waitpid(pid, &status, 0) == pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 42, "status %#x", status);
	has(text, "1 ops in flight");
	has(text, "runs op");
	has(text, "the-crash");
	has(text, "write pending");
	munmap(page, 4096);
}
END_TEST

/* Pushes that are not at their end; a var that was deleted is not listed, nor idle. */
START_TEST(test_pushes_and_deleted_vars)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct thread *t = thread_get(e);
	u64 was = load_relaxed(&t->d.status);
	pawl_var_t v[3] = { var_new(e), var_new(e), var_new(e) };

	has(dump(e), "\n3 vars idle\n");
	OK(pawl_var_delete(e, v[1], NULL, NULL));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	has(dump(e), "\n2 vars idle\n");
	ck_assert_ptr_null(strstr(dump(e), " push "));
	ck_assert_ptr_null(strstr(dump(e), "\nvar "));
	store_relaxed(&t->d.status, status_make(77, PHASE_LINKING));
	has(dump(e), "\nthread 0: push 77 is linking\n");
	store_relaxed(&t->d.status, status_make(78, PHASE_COMMITTED));
	has(dump(e), "\nthread 0: push 78 is attaching\n");
	store_relaxed(&t->d.status, was);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A name that is longer than a line is cut, and the dump continues. */
START_TEST(test_long_name)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	static char name[1000];
	struct pawl_op op;
	struct gate g;

	memset(name, 'n', sizeof(name) - 1);
	gate_write(e, &g, v);
	op = op_read(nothing, NULL, &v);
	op.name = name;
	OK(pawl_push(e, &op));
	has(dump(e), "nnnnnnnn\n");
	has(dump(e), "vars idle\n");
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The text is like this one, in which each # is a number. */
static void same(const char *text, const char *like)
{
	const char *t = text, *l = like;

	for (; *l; l++, t++) {
		if (*l == '#') {
			ck_assert_msg(isdigit((unsigned char)*t), "no number at \"%s\"", t);
			while (isdigit((unsigned char)t[1]))
				t++;
			continue;
		}
		ck_assert_msg(*t == *l, "\"%s\" where \"%s\" belongs, in:\n%s", t, l, text);
	}
	ck_assert_str_eq(t, "");
}

static int dumps(struct pawl_run *run, void *arg)
{
	*(char **)arg = strdup(dump(run->engine));
	return 0;
}

static void *writable_waiter(void *arg)
{
	struct gate *g = arg;
	pawl_var_t v = { 0 };

	v.h = g->token.h;
	MUST(!pawl_wait(g->e, PAWL_WAIT_WRITABLE | PAWL_WAIT_NO_HELP, v.h, SOON_NS, NULL));
	return NULL;
}

/* A poisoned var, two that are held, and a reader and a delete that wait. */
START_TEST(test_text)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	pawl_var_t v[6];
	struct pawl_op op;
	struct gate g, h, w = { 0 };
	char *text;
	pthread_t t;
	u32 i;

	w.e = e = engine_with(&c);
	OK(pawl_thread_attach(e));
	for (i = 0; i < 6; i++)
		v[i] = var_new(e);
	OK(push_write(e, fail_io, NULL, v[2]));
	ck_assert_int_eq(pawl_run_one(e), 1);
	for (i = 0; i < 3; i++)
		OK(push_write(e, nothing, NULL, v[0]));
	while (pawl_run_one(e))
		;
	gate_write(e, &g, v[0]);
	OK(gate_push(e, &h, v + 3, 2, NULL, 0));
	op = op_of_fn(nothing, NULL);
	op.name = "reader";
	op.reads = v;
	op.nreads = 2;
	OK(pawl_push(e, &op));
	OK(pawl_var_delete(e, v[4], NULL, NULL));
	w.token.h = v[3].h;
	t = spawn(writable_waiter, &w);
	ck_assert(soon(strstr(dump(e), "thread 1: waits by") && strstr(dump(e), "by thread 1")));
	op = op_of_fn(dumps, &text);
	op.priority = 1;
	OK(pawl_push(e, &op));
	ck_assert_int_eq(pawl_run_one(e), 1);
	same(text,
	     "pawl engine #: 6 ops in flight, 2 thread slots\n"
	     "thread 0: runs op # (no name)\n"
	     "thread 0: pushed, to be completed: op # gate\n"
	     "thread 0: pushed, to be completed: op # gate\n"
	     "thread 1: waits by op # wait\n"
	     "var 1.#: version 3, newest write pending, last pushed by thread 0, "
	     "2 holders of it, readers wait\n"
	     "  newest waiting reader: op # reader, waits for 1 accesses\n"
	     "var 2.#: version 0, newest write done, last pushed by thread 0, 1 holders of it\n"
	     "var 3.#: version 1, newest write done, last pushed by thread 0, "
	     "0 holders of it, poisoned\n"
	     "var 4.#: version 0, newest write pending, last pushed by thread 1, "
	     "1 holders of it\n"
	     "var 5.#: version 0, newest write pending, last pushed by thread 0, "
	     "1 holders of it, deleted\n"
	     "1 vars idle\n");
	gate_open(&g);
	gate_open(&h);
	join(t);
	free(text);
	while (pawl_run_one(e))
		;
	pawl_wait_all(e, SOON_NS, NULL);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A write that is short, or interrupted, is continued; what cannot be written is reported. */
START_TEST(test_the_end_does_not_fit)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct rlimit was, limit;
	FILE *f = tmpfile();
	size_t n;
	int rc;

	n = strlen(dump(e));
	signal(SIGXFSZ, SIG_IGN);
	MUST(f && !getrlimit(RLIMIT_FSIZE, &was));
	limit = was;
	limit.rlim_cur = n - 3;
	MUST(!setrlimit(RLIMIT_FSIZE, &limit));
	rc = pawl_dump(e, fileno(f));
	MUST(!setrlimit(RLIMIT_FSIZE, &was));
	signal(SIGXFSZ, SIG_DFL);
	ck_assert_int_eq(rc, -EFBIG);
	ck_assert_int_eq(lseek(fileno(f), 0, SEEK_END), (off_t)n - 3);
	fclose(f);
	OK(pawl_engine_destroy(e));
}
END_TEST

static void count_handler(int sig)
{
	fetch_add_relaxed(&handled, 1);
}

static void *dumper(void *arg)
{
	MUST(!pawl_dump(arg, handler_fd));
	close(handler_fd);
	return NULL;
}

/* The pipe is full, so the thread is inside write() when the signals come, or soon is. */
START_TEST(test_an_interrupted_write_is_made_again)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct sigaction sa = { .sa_handler = count_handler };
	char text[1024];
	size_t n = 0, full = 0;
	ssize_t got;
	pthread_t t;
	u32 i, was;
	int fd[2];

	MUST(!pipe(fd) && !fcntl(fd[1], F_SETFL, O_NONBLOCK));
	memset(text, 'x', sizeof(text));
	while (write(fd[1], text, sizeof(text)) > 0)
		full += sizeof(text);
	MUST(!fcntl(fd[1], F_SETFL, 0));
	handler_fd = fd[1];
	MUST(!sigaction(SIGUSR1, &sa, NULL));
	t = spawn(dumper, e);
	for (i = 0; i < 20; i++) {
		was = load_relaxed(&handled);
		/* A sanitizer may deliver a signal late, at the end of a system call. */
		ck_assert(soon(!pthread_kill(t, SIGUSR1) && load_relaxed(&handled) != was));
		nap_us(200);
	}
	for (; full; full -= sizeof(text))
		MUST(read(fd[0], text, sizeof(text)) == sizeof(text));
	while ((got = read(fd[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = 0;
	join(t);
	close(fd[0]);
	handler_set(SIGUSR1, SIG_DFL);
	same(text, "pawl engine #: 0 ops in flight, # thread slots\n0 vars idle\n");
	OK(pawl_engine_destroy(e));
}
END_TEST

static int no_thread(void *user, void *(*fn)(void *arg), void *arg, void **thread)
{
	return -EAGAIN;
}

static void no_join(void *user, void *thread)
{
	MUST(false);
}

START_TEST(test_workers_that_do_not_start)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	sigset_t before, after;
	int sig;

	c.thread_create = no_thread;
	c.thread_join = no_join;
	e = engine_with(&c);
	MUST(!pthread_sigmask(SIG_SETMASK, NULL, &before));
	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* the signals that the push blocked for the thread arrive again */
	MUST(!pthread_sigmask(SIG_SETMASK, NULL, &after));
	for (sig = 1; sig < NSIG; sig++)
		ck_assert_int_eq(sigismember(&before, sig), sigismember(&after, sig));
	has(dump(e), "\nworkers could not be started: error 11\n");	/* EAGAIN */
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("dump", test_idle, test_stuck, test_the_last_var_is_listed, test_lists_ops,
      test_a_body_that_ran_another_one_is_listed, test_waiter_is_named, test_bad_fd, test_while_it_moves, test_in_a_signal_handler,
      test_in_a_crash, test_pushes_and_deleted_vars, test_long_name, test_text,
      test_the_end_does_not_fit, test_an_interrupted_write_is_made_again,
      test_workers_that_do_not_start)
