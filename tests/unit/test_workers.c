// SPDX-License-Identifier: Apache-2.0
/* How an engine's threads are made: when, with what attributes, by whom, and how many. */
#include "util.h"
#include "threads.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <core/admit.h>
#include <core/cpus.h>
#include <exec/internal.h>

static u32 fail_from = UINT32_MAX;	/* A: workers from this number on cannot be created */

int exec_worker_hook(const char *queue, u32 i)
{
	return i >= load_relaxed(&fail_from) ? EAGAIN : 0;
}

/* Threads start and end by themselves. */
#define TASKS(n) ck_assert_msg(soon(threads_now() == before + (n)), "%u threads, expected %u", \
			       threads_now() - before, (n))

static void *ends_at_once(void *arg)
{
	snprintf(arg, PATH_MAX, "/proc/self/task/%d", gettid());
	return NULL;
}

/* A sanitizer starts a thread of its own with the first one. */
static u32 threads_before(void)
{
	char task[PATH_MAX];
	pthread_t id;

	MUST(!pthread_create(&id, NULL, ends_at_once, task) && !pthread_join(id, NULL));
	MUST(soon(access(task, F_OK)));
	return threads_now();
}

START_TEST(test_threads_are_as_many_as_documented)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	u32 before, n = 0, i;
	struct pawl_engine *e;

	before = threads_before();
	c.start_workers = true;
	c.cpu_devices = 2;
	c.priority_workers = 3;
	c.copy_workers = 1;
	e = engine_with(&c);
	TASKS(2u * 2 + 3 + 2 * 2 * 1);
	ck_assert_uint_eq(stats(e).workers, 11);
	for (i = 0; i < 50; i++) {
		pawl_var_t v = var_new(e);
		struct pawl_op op = op_write(add_one, &n, &v);

		op.prop = (u16)(i % 4);
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 50);
	TASKS(11u);
	OK(pawl_engine_stop(e));
	TASKS(0u);
	OK(pawl_engine_start(e));
	TASKS(11u);
	OK(pawl_engine_destroy(e));
	TASKS(0u);

	c.kind = PAWL_POOLED;
	e = engine_with(&c);
	TASKS(2u + 1);
	OK(pawl_engine_destroy(e));
	c.kind = PAWL_NAIVE;
	e = engine_with(&c);
	TASKS(0u);
	OK(pawl_engine_destroy(e));
	c.kind = PAWL_PER_DEVICE;
	c.workers = 0;
	e = engine_with(&c);
	TASKS(0u);
	OK(pawl_engine_destroy(e));

	/* Without start_workers the workers of a queue are created with its first op. */
	c = small(PAWL_PER_DEVICE, 2);
	e = engine_with(&c);
	TASKS(0u);
	OK(push_write(e, add_one, &n, var_new(e)));
	TASKS(2u);
	OK(pawl_engine_destroy(e));
	TASKS(0u);
}
END_TEST

static void enter_late(void *user, const char *name)
{
	nap_us(5000);
	fetch_add_relaxed((u32 *)user, 1);
}

START_TEST(test_a_start_returns_when_all_workers_have_entered)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 3);
	struct pawl_engine *e;
	u32 entered = 0, i;

	c.start_workers = true;
	c.thread_start = enter_late;
	c.user = &entered;
	c.priority_workers = c.copy_workers = 0;
	e = engine_with(&c);
	for (i = 1; i <= 4; i++) {
		ck_assert_uint_eq(load_relaxed(&entered), i * stats(e).workers);
		OK(pawl_engine_stop(e));
		OK(pawl_engine_start(e));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The size of a recording that begins and ends at once: it has a chunk for each engine. */
static off_t recording_now(void)
{
	const char *path = temp_path();
	int rc = pawl_record_start(path);
	struct stat st;

	if (rc == -ENOSYS) {	/* built without CONFIG_RECORD */
		MUST(!unlink(path));
		return 0;
	}
	OK(rc);
	OK(pawl_record_stop());
	MUST(!stat(path, &st) && !unlink(path));
	return st.st_size;
}

START_TEST(test_start_workers_says_what_failed)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	u32 before = threads_before(), n = 0;
	off_t size = recording_now();
	struct pawl_engine *e;

	c.start_workers = true;
	store_relaxed(&fail_from, 1);
	FAILS(pawl_engine_create(&c, &e), -EAGAIN, "engine_create", "worker");
	ck_assert_ptr_null(e);
	TASKS(0u);
	ck_assert_int_eq(recording_now(), size);
	store_relaxed(&fail_from, UINT32_MAX);
	OK(pawl_engine_create(&c, &e));
	OK(pawl_engine_stop(e));
	store_relaxed(&fail_from, 0);
	FAILS(pawl_engine_start(e), -EAGAIN, "engine_start", "worker");
	/* The engine works without them. */
	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	store_relaxed(&fail_from, UINT32_MAX);
	OK(pawl_engine_stop(e));
	OK(pawl_engine_start(e));
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(n, 1);
	/* All workers need a slot, and so does the thread that creates the engine. */
	c.max_threads = 2 + 1 + 2;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "max_threads", "6");
	c.max_threads = 6;
	e = engine_with(&c);
	TASKS(5u);
	OK(pawl_engine_destroy(e));
}
END_TEST

struct seen {
	u32 n;			/* A */
	int policy, priority;
	size_t stack;
	cpu_set_t cpus;
};

static int look(struct pawl_run *run, void *arg)
{
	struct seen *s = arg;
	struct sched_param sp;
	pthread_attr_t a;

	MUST(!pthread_getschedparam(pthread_self(), &s->policy, &sp));
	s->priority = sp.sched_priority;
	MUST(!pthread_getattr_np(pthread_self(), &a));
	MUST(!pthread_attr_getstacksize(&a, &s->stack));
	pthread_attr_destroy(&a);
	MUST(!sched_getaffinity(0, sizeof(s->cpus), &s->cpus));
	fetch_add_release(&s->n, 1);
	return 0;
}

static struct seen look_at_prop(struct pawl_engine *e, u16 device, u16 prop)
{
	struct seen s = { 0 };
	struct pawl_op op = op_of_fn(look, &s);

	op.device.id = device;
	op.prop = prop;
	OK(pawl_push(e, &op));
	ck_assert(soon(load_acquire(&s.n)));	/* on a worker: this thread does not help */
	return s;
}

static struct seen look_at(struct pawl_engine *e, u16 device)
{
	return look_at_prop(e, device, PAWL_NORMAL);
}

START_TEST(test_attributes_of_workers)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	char lists[2][64];
	cpu_set_t mine;
	struct pawl_engine *e;
	struct seen s;
	int cpu;

	MUST(!sched_getaffinity(0, sizeof(mine), &mine));
	for (cpu = 0; !CPU_ISSET(cpu, &mine); cpu++)
		;
	snprintf(lists[0], sizeof(lists[0]), "%d", cpu);
	snprintf(lists[1], sizeof(lists[1]), "0-1023;%d", cpu);
	c.stack_size = 512 << 10;
	c.sched_policy = SCHED_OTHER;
	c.cpu_list = lists[0];
	e = engine_with(&c);
	lists[0][0] = 'x';		/* it was copied */
	s = look_at(e, 0);
	ck_assert_int_eq(s.policy, SCHED_OTHER);
	if (!SANITIZED)
		ck_assert_uint_eq(s.stack, 512 << 10);
	ck_assert_int_eq(CPU_COUNT(&s.cpus), 1);
	ck_assert(CPU_ISSET(cpu, &s.cpus));
	OK(pawl_engine_destroy(e));
	/* A list for each CPU device. */
	c.cpu_devices = 2;
	c.cpu_list = lists[1];
	e = engine_with(&c);
	s = look_at(e, 1);
	ck_assert(CPU_COUNT(&s.cpus) == 1 && CPU_ISSET(cpu, &s.cpus));
	s = look_at(e, 0);
	ck_assert_int_ge(CPU_COUNT(&s.cpus), CPU_COUNT(&mine));
	/* Threads of no device's normal queue have the CPUs of all lists. */
	s = look_at_prop(e, 1, PAWL_CPU_PRIORITIZED);
	ck_assert_int_ge(CPU_COUNT(&s.cpus), CPU_COUNT(&mine));
	OK(pawl_engine_destroy(e));
	/* As its creator, or as the configuration says, also where that is the default. */
	c.cpu_devices = 1;
	c.cpu_list = NULL;
	MUST(!pthread_setschedparam(pthread_self(), SCHED_BATCH, &(struct sched_param){ 0 }));
	e = engine_with(&c);
	s = look_at(e, 0);
	ck_assert_int_eq(s.policy, SCHED_OTHER);
	OK(pawl_engine_destroy(e));
	c.sched_policy = -1;
	e = engine_with(&c);
	s = look_at(e, 0);
	ck_assert_int_eq(s.policy, SCHED_BATCH);
	OK(pawl_engine_destroy(e));
	MUST(!pthread_setschedparam(pthread_self(), SCHED_OTHER, &(struct sched_param){ 0 }));
	/* Real time, or the error of a system that does not permit it. */
	c.cpu_devices = 1;
	c.cpu_list = NULL;
	c.sched_policy = SCHED_FIFO;
	c.sched_priority = 3;
	if (pawl_engine_create(&c, &e)) {
		FAILS(pawl_engine_create(&c, &e), -EPERM, "sched_policy");
		ck_assert_ptr_null(e);
		c.sched_policy = -1;
		c.sched_priority = 0;
		OK(pawl_engine_create(&c, &e));
		OK(pawl_engine_destroy(e));
		return;
	}
	s = look_at(e, 0);
	ck_assert_int_eq(s.policy, SCHED_FIFO);
	ck_assert_int_eq(s.priority, 3);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Engines that are created and destroyed leave nothing of their threads behind. */
START_TEST(test_threads_leave_nothing_behind)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	cpu_set_t mine;
	char list[16];
	size_t before;
	u32 i;
	int cpu;

	MUST(!sched_getaffinity(0, sizeof(mine), &mine));
	for (cpu = 0; !CPU_ISSET(cpu, &mine); cpu++)
		;
	snprintf(list, sizeof(list), "%d", cpu);
	c.cpu_list = list;
	c.stack_size = 512 << 10;
	c.sched_policy = SCHED_OTHER;
	c.start_workers = true;
	/* The allocator keeps some memory itself, but not each time. */
	for (i = 0; ; i++) {
		MUST(i < 100);
		before = heap_used();
		e = engine_with(&c);
		OK(pawl_engine_destroy(e));
		if (i && heap_used() <= before)
			break;
	}
}
END_TEST

static int no_create_rc = -EPERM;

static int no_create(void *user, void *(*fn)(void *arg), void *arg, void **thread)
{
	return no_create_rc;
}

static void no_join(void *user, void *thread)
{
}

START_TEST(test_wrong_attributes)
{
	const struct pawl_config ok = small(PAWL_PER_DEVICE, 1);
	static const int one[] = { 0 };
	static const struct { const char *list, *word; } bad[] = {
		{ "", "byte 0" }, { "x", "byte 0" }, { "0,", "byte 2" }, { "0-", "byte 2" },
		{ "3-1", "byte 3" }, { "0 ", "byte 1" }, { "1024", "byte" }, { "-1", "byte 0" },
		{ "0;1", "more lists" }, { "99999999999999999999", "byte" },
		{ "1023", "sched_policy" },	/* no such CPU: the system says so */
	};
	struct pawl_config c = ok;
	struct pawl_engine *e;
	u32 i;
	int rc;

	c.stack_size = 100;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "stack_size", "100");
	c.stack_size = (size_t)sysconf(_SC_THREAD_STACK_MIN) - 1;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "stack_size", "the least is");
	c.stack_size++;
	if (!SANITIZED) {
		OK(pawl_engine_create(&c, &e));
		OK(pawl_engine_destroy(e));
	}
	c = ok;
	c.sched_policy = 77;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "sched_policy", "77");
	c.sched_policy = SCHED_FIFO;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "sched_priority");
	c.sched_priority = 100;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "sched_priority", "100");
	/* The most that there is may be forbidden, but is not wrong. */
	c.sched_priority = 99;
	rc = pawl_engine_create(&c, &e);
	ck_assert_msg(!rc || rc == -EPERM, "%d: %s", rc, pawl_error_text());
	if (!rc)
		OK(pawl_engine_destroy(e));
	c.sched_policy = -1;
	c.sched_priority = 1;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "sched_priority");
	for (i = 0; i < COUNT(bad); i++) {
		c = ok;
		c.cpu_list = bad[i].list;
		FAILS(pawl_engine_create(&c, &e), -EINVAL, "cpu_list", bad[i].word);
		ck_assert_ptr_null(e);
	}
	/* Of each list: the second one has no CPU that there is. */
	c.cpu_devices = 2;
	c.cpu_list = "0-1022;1023";
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "cpu_list 0-1022;1023");
	c.cpu_devices = 3;
	c.cpu_list = "0;0";
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "cpu_list", "cpu_devices");
	c.cpus = one;
	c.ncpus = 1;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "cpu_list", "config.cpus");
	c = ok;
	c.thread_create = no_create;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "thread_join");
	c.thread_join = no_join;
	c.stack_size = 1 << 20;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "stack_size", "thread_create");
	c.stack_size = 0;
	c.start_workers = true;
	/* An errno of the host is one with either sign, as that of pthread_create(). */
	FAILS(pawl_engine_create(&c, &e), -EPERM, "worker");
	no_create_rc = ENOSPC;
	FAILS(pawl_engine_create(&c, &e), -ENOSPC, "worker");
	ck_assert_ptr_null(e);
}
END_TEST

/* The host creates the threads, and learns of each begin and end. */
struct host {
	u32 created, joined, running;	/* A */
};

struct host_thread {
	pthread_t t;
	struct host *h;
	void *(*fn)(void *arg);
	void *arg;
};

static void *host_main(void *arg)
{
	struct host_thread *t = arg;
	sigset_t mask;
	void *rc;

	/* Its signals are those of the library's own threads. */
	MUST(!pthread_sigmask(SIG_SETMASK, NULL, &mask));
	MUST(sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1));
	MUST(!sigismember(&mask, SIGSEGV) && !sigismember(&mask, SIGBUS));

	fetch_add_relaxed(&t->h->running, 1);
	rc = t->fn(t->arg);
	fetch_add_relaxed(&t->h->running, -1u);
	return rc;
}

static int host_create(void *user, void *(*fn)(void *arg), void *arg, void **thread)
{
	struct host_thread *t = malloc(sizeof(*t));

	MUST(t);
	*t = (struct host_thread){ .h = user, .fn = fn, .arg = arg };
	*thread = t;
	fetch_add_relaxed(&t->h->created, 1);
	return -pthread_create(&t->t, NULL, host_main, t);
}

static void host_join(void *user, void *thread)
{
	struct host_thread *t = thread;

	fetch_add_relaxed(&t->h->joined, 1);
	join(t->t);
	free(t);
}

START_TEST(test_host_makes_the_threads)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	struct host h = { 0 };
	struct pawl_engine *e;
	sigset_t before, mask;
	u32 n = 0, i;

	c.thread_create = host_create;
	c.thread_join = host_join;
	c.user = &h;
	c.start_workers = true;
	MUST(!pthread_sigmask(SIG_SETMASK, NULL, &before));
	e = engine_with(&c);
	/* Signals are blocked only while the threads are made, which inherit the mask. */
	MUST(!pthread_sigmask(SIG_SETMASK, NULL, &mask));
	ck_assert_int_eq(sigismember(&mask, SIGTERM), sigismember(&before, SIGTERM));
	ck_assert_int_eq(sigismember(&mask, SIGUSR1), sigismember(&before, SIGUSR1));
	ck_assert_uint_eq(h.created, 5);
	ck_assert_uint_eq(load_relaxed(&h.running), 5);
	for (i = 0; i < 100; i++)
		OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_engine_stop(e));
	ck_assert_uint_eq(n, 100);
	ck_assert_uint_eq(h.joined, 5);
	ck_assert_uint_eq(load_relaxed(&h.running), 0);
	OK(pawl_engine_start(e));
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(h.created, 10);
	ck_assert_uint_eq(h.joined, 10);
}
END_TEST

/* --- no worker can be made: the thread that waits runs the ops --- */

struct level {
	const struct level *next;	/* NULL: the last */
	pawl_var_t v;
	u32 *ran;
};

static int goes_deeper(struct pawl_run *run, void *arg)
{
	const struct level *l = arg;

	if (l->next) {
		MUST(!push_write(run->engine, goes_deeper, TEXT(l->next), l->next->v));
		MUST(!pawl_wait_readable(run->engine, l->next->v, SOON_NS, NULL));
	}
	fetch_add_relaxed(l->ran, 1);
	return 0;
}

/* Also a wait that would leave them to workers: by a flag, the configuration, or its depth. */
START_TEST(test_without_workers_every_wait_runs_ops)
{
	static struct level l[74];
	struct pawl_config c = small(PAWL_PER_DEVICE, 4);
	u32 help, i, ran = 0;

	c.copy_workers = c.priority_workers = 4;
	store_relaxed(&fail_from, 0);
	for (help = 0; help < 2; help++) {
		u32 how = help ? PAWL_WAIT_NO_HELP : 0;
		struct pawl_engine *e;

		e = engine_with(&c);
		for (i = 0; i < COUNT(l); i++)
			l[i] = (struct level){ i + 1 < COUNT(l) ? &l[i + 1] : NULL, var_new(e), &ran };
		ran = 0;
		OK(push_write(e, goes_deeper, l, l->v));
		OK(pawl_wait(e, PAWL_WAIT_READABLE | how, l->v.h, SOON_NS, NULL));
		ck_assert_uint_eq(ran, COUNT(l));
		OK(push_write(e, add_one, &ran, l->v));
		OK(pawl_wait(e, PAWL_WAIT_WRITABLE | how, l->v.h, SOON_NS, NULL));
		OK(push_write(e, add_one, &ran, l->v));
		OK(pawl_wait(e, PAWL_WAIT_ALL | how, 0, SOON_NS, NULL));
		ck_assert_uint_eq(ran, COUNT(l) + 2);
		OK(pawl_engine_destroy(e));
	}
	store_relaxed(&fail_from, UINT32_MAX);
}
END_TEST

/* --- the default number of workers --- */

static char root[PATH_MAX];

static void put(const char *path, const char *text)
{
	char name[2 * PATH_MAX], *p;
	FILE *f;

	snprintf(name, sizeof(name), "%s/%s", root, path);
	for (p = name + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		MUST(!mkdir(name, 0700) || errno == EEXIST);
		*p = '/';
	}
	f = fopen(name, "w");
	MUST(f && fputs(text, f) >= 0 && !fclose(f));
}

static u32 usable(const char *groups)
{
	char name[2 * PATH_MAX];

	put("groups", groups);
	snprintf(name, sizeof(name), "%s/groups", root);
	return cpus_usable(name, root);
}

START_TEST(test_default_respects_affinity_and_quota)
{
	char cmd[2 * PATH_MAX];
	cpu_set_t mine, one;
	struct pawl_config c;
	u32 all;
	int cpu, next = next_fd();

	snprintf(root, sizeof(root), "%s", "/tmp/pawl-cgroup-XXXXXX");
	MUST(mkdtemp(root));
	MUST(!sched_getaffinity(0, sizeof(mine), &mine));
	all = (u32)CPU_COUNT(&mine);
	ck_assert_uint_eq(cpus_usable("/nonexistent", "/nonexistent"), all);
	ck_assert_uint_eq(usable("0::/a/b\n"), all);
	/* version 2: rounded up, at least 1, and the groups above count */
	put("a/b/cpu.max", "50000 100000\n");
	ck_assert_uint_eq(usable("0::/a/b\n"), 1);
	put("a/b/cpu.max", "100000 100000\n");
	ck_assert_uint_eq(usable("0::/a/b\n"), 1);
	put("a/b/cpu.max", "100001 100000\n");
	ck_assert_uint_eq(usable("0::/a/b\n"), all < 2 ? all : 2);
	put("a/b/cpu.max", "max 100000\n");
	ck_assert_uint_eq(usable("0::/a/b\n"), all);
	put("a/cpu.max", "20000 100000\n");
	ck_assert_uint_eq(usable("0::/a/b\n"), 1);
	ck_assert_uint_eq(usable("0::/\n"), all);
	put("cpu.max", "1 100000\n");		/* in a container: its own root */
	ck_assert_uint_eq(usable("0::/\n"), 1);
	ck_assert_uint_eq(usable("0::/not/there\n"), 1);
	put("a/b/cpu.max", "800000 100000\n");
	put("a/cpu.max", "700000 100000\n");
	ck_assert_uint_eq(usable("0::/a/b\n"), 1);
	put("cpu.max", "nonsense\n");
	put("a/cpu.max", "\n");
	ck_assert_uint_eq(usable("0::/a/b\n"), all < 8 ? all : 8);
	/* version 1 */
	put("cpu,cpuacct/g/cpu.cfs_quota_us", "-1\n");
	put("cpu,cpuacct/g/cpu.cfs_period_us", "100000\n");
	ck_assert_uint_eq(usable("5:cpuset:/g\n4:cpu,cpuacct:/g\n0::/\n"), all);
	put("cpu,cpuacct/g/cpu.cfs_quota_us", "90000\n");
	ck_assert_uint_eq(usable("5:cpuset:/g\n4:cpu,cpuacct:/g\n0::/\n"), 1);
	ck_assert_uint_eq(usable("5:cpuset,cpuacct:/g\n"), all);
	ck_assert_uint_eq(usable("4:cpu,cpuacct:/g/h\n"), 1);	/* the group above */
	put("cpu,cpuacct/n/cpu.cfs_quota_us", "90000\n");	/* without a period */
	ck_assert_uint_eq(usable("4:cpu,cpuacct:/n\n"), all);
	put("cpuacct,cpu/g/cpu.cfs_quota_us", "90000\n");
	put("cpuacct,cpu/g/cpu.cfs_period_us", "100000\n");
	ck_assert_uint_eq(usable("4:cpuacct,cpu:/g\n"), 1);
	put("cpuset/g/cpu.cfs_quota_us", "90000\n");
	put("cpuset/g/cpu.cfs_period_us", "100000\n");
	ck_assert_uint_eq(usable("4:cpuset:/g\n"), all);
	/* a group whose files cannot be named */
	memset(cmd, 'g', PATH_MAX);
	memcpy(cmd, "0::/", 4);
	strcpy(cmd + PATH_MAX - 10, "\n");
	ck_assert_uint_eq(usable(cmd), all);
	ck_assert_uint_eq(usable("junk\n4:cpu\n"), all);
	ck_assert_int_eq(next_fd(), next);	/* no file stays open */
	snprintf(cmd, sizeof(cmd), "rm -r %s", root);
	MUST(!system(cmd));

	for (cpu = 0; !CPU_ISSET(cpu, &mine); cpu++)
		;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	MUST(!sched_setaffinity(0, sizeof(one), &one));
	ck_assert_uint_eq(cpus_usable("/nonexistent", "/nonexistent"), 1);
	pawl_config_init(&c);
	ck_assert_int_eq(c.workers, 1);
	ck_assert_uint_eq(c.spin_ns, 0);
	MUST(!sched_setaffinity(0, sizeof(mine), &mine));
	pawl_config_init(&c);
	ck_assert_uint_eq(c.spin_ns, all > 1 ? 20000 : 0);
}
END_TEST

START_TEST(test_lists_of_cpus)
{
	cpu_set_t s[3];

	memset(s, 0xff, sizeof(s));
	ck_assert_int_eq(cpus_parse("0", s, 1), 1);
	ck_assert(CPU_COUNT(&s[0]) == 1 && CPU_ISSET(0, &s[0]));
	ck_assert_int_eq(cpus_parse("0-3,8;4-7,1023;5", s, 3), 3);
	ck_assert_int_eq(CPU_COUNT(&s[0]), 5);
	ck_assert(CPU_ISSET(3, &s[0]) && CPU_ISSET(8, &s[0]) && !CPU_ISSET(4, &s[0]));
	ck_assert(CPU_COUNT(&s[1]) == 5 && CPU_ISSET(1023, &s[1]));
	ck_assert(CPU_COUNT(&s[2]) == 1 && CPU_ISSET(5, &s[2]));
	FAILS(cpus_parse("0;1;2;3", s, 3), -EINVAL, "more lists");
	FAILS(cpus_parse("0;", s, 3), -EINVAL, "byte 2");
}
END_TEST

SUITE("workers", test_threads_are_as_many_as_documented,
      test_a_start_returns_when_all_workers_have_entered, test_start_workers_says_what_failed,
      test_attributes_of_workers, test_threads_leave_nothing_behind, test_wrong_attributes,
      test_host_makes_the_threads, test_without_workers_every_wait_runs_ops,
      test_default_respects_affinity_and_quota, test_lists_of_cpus)
