// SPDX-License-Identifier: Apache-2.0
/*
 * core/publish.c: what a process tells of its engines, whom, and what is left of it; the JSON of
 * core/snapshot.c.  Each test has a folder of its own for the sockets.
 */
#include "util.h"
#include "child.h"
#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char folder[64], text[1 << 18];

static void folder_make(void)
{
	strcpy(folder, "/tmp/pawl-publish.XXXXXX");
	MUST(mkdtemp(folder));
	MUST(!setenv("PAWL_PUBLISH", folder, 1));
}

/* The folder is empty: each process has removed its socket. */
static void folder_remove(void)
{
	MUST(!unsetenv("PAWL_PUBLISH"));
	ck_assert_int_eq(rmdir(folder), 0);
}

static bool has_socket(pid_t pid)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%d", folder, (int)pid);
	return !access(path, F_OK);
}

static int client(pid_t pid)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = SOON_MS / 1000 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	MUST(fd >= 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s/%d", folder, (int)pid);
	MUST(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	if (!connect(fd, (void *)&at, sizeof(at)))
		return fd;
	close(fd);
	return -1;
}

static const char *ask(int fd, const char *request)
{
	ssize_t n;

	MUST(send(fd, request, strlen(request), 0) >= 0);
	n = recv(fd, text, sizeof(text) - 1, 0);
	MUST(n > 0);
	text[n] = 0;
	return text;
}

static unsigned int threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned int n = 0;

	MUST(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/* An engine whose worker sleeps. */
static struct pawl_engine *asleep(void)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);

	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	return e;
}

START_TEST(test_a_folder_that_others_may_enter_is_refused)
{
	char path[200];

	folder_make();
	MUST(!chmod(folder, 0755));
	ck_assert_int_eq(pawl_publish(true), -EPERM);
	MUST(!chmod(folder, 0700));
	memset(path, '/', sizeof(path));
	path[sizeof(path) - 1] = 0;
	MUST(!setenv("PAWL_PUBLISH", path, 1));
	ck_assert_int_eq(pawl_publish(true), -ENAMETOOLONG);
	MUST(!setenv("PAWL_PUBLISH", folder, 1));
	OK(pawl_publish(true));
	OK(pawl_publish(false));
	folder_remove();
}
END_TEST

/* No thread before a client comes, one while it is there, none afterwards. */
START_TEST(test_a_thread_serves_while_there_is_a_client)
{
	struct pawl_engine *e;
	unsigned int before;
	int fd;

	folder_make();
	e = asleep();
	before = threads();
	fd = client(getpid());
	ck_assert_ptr_nonnull(strstr(ask(fd, "snapshot"), "\"completed\":"));
	ck_assert_uint_eq(threads(), before + 1);
	ck_assert_ptr_nonnull(strstr(ask(fd, "dance"), "\"error\":22"));
	close(fd);
	while (threads() != before)
		usleep(10000);
	fd = client(getpid());
	ask(fd, "snapshot");
	close(fd);
	OK(pawl_engine_destroy(e));
	folder_remove();
}
END_TEST

static u32 go;

static int stands(struct pawl_run *run, void *arg)
{
	while (!load_acquire(&go))
		usleep(1000);
	return 0;
}

/* What holds a var, a group near its limit, and a queue that nobody reaps. */
START_TEST(test_what_a_snapshot_says)
{
	struct pawl_group_limits limits = { .size = sizeof(limits), .ops = 4 };
	struct pawl_engine *e;
	pawl_group_t group;
	struct pawl_op op;
	pawl_var_t v;
	pawl_cq_t cq;
	int fd, i;

	folder_make();
	store_relaxed(&go, 0);
	e = engine(PAWL_PER_DEVICE, 2);
	v = var_new(e);
	OK(pawl_group_create(e, &limits, &group));
	OK(pawl_cq_create(e, &cq));
	for (i = 0; i < 3; i++) {
		op = (struct pawl_op){ .size = sizeof(op), .fn = i ? nothing : stands, .writes = &v,
			.nwrites = 1, .name = "a \"name\"\n", .group = group, .cq = cq,
			.flags = PAWL_OP_GROUP | PAWL_OP_CQ };
		OK(pawl_push(e, &op));
	}
	fd = client(getpid());
	/* What two requests both find is held. */
	ask(fd, "snapshot");
	do
		ask(fd, "snapshot");
	while (!strstr(text, "\"what\":\"body\""));
	ck_assert_msg(strstr(text, "\"name\":\"a \\\"name\\\"\\\\u000a\"") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "\"behind\":2}") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "\"ops\":3,\"max_ops\":4,\"cost\":0,\"max_cost\":0,\"full\":0.750") != NULL,
		      "%s", text);
	ck_assert_msg(strstr(text, "\"completions\":3") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "\"more\":false}") != NULL, "%s", text);
	close(fd);
	store_release(&go, 1);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
	folder_remove();
}
END_TEST

START_TEST(test_the_socket_lives_as_long_as_an_engine)
{
	struct pawl_engine *e[2];

	folder_make();
	OK(pawl_publish(false));
	e[0] = asleep();
	e[1] = asleep();
	OK(pawl_engine_destroy(e[0]));
	ck_assert(has_socket(getpid()));
	OK(pawl_engine_destroy(e[1]));
	ck_assert(!has_socket(getpid()));
	/* 0 takes precedence. */
	OK(pawl_publish(true));
	MUST(!setenv("PAWL_PUBLISH", "0", 1));
	e[0] = asleep();
	ck_assert(!has_socket(getpid()));
	OK(pawl_engine_destroy(e[0]));
	OK(pawl_publish(false));
	folder_remove();
}
END_TEST

/* A killed process leaves its socket, which the next one removes. */
START_TEST(test_children)
{
	struct pawl_engine *e, *mine;
	pid_t pid;
	int fd;

	folder_make();
	e = asleep();
	fd = client(getpid());
	ask(fd, "snapshot");
	pid = child_fork();
	if (!pid) {
		/* The parent's socket is not the child's. */
		MUST(!pawl_engine_destroy(e));
		MUST(has_socket(getppid()));
		MUST(!pawl_engine_create(NULL, &mine));
		MUST(has_socket(getpid()));
		kill(getpid(), SIGKILL);
	}
	MUST(waitpid(pid, NULL, 0) == pid);
	ck_assert(has_socket(pid));
	ask(fd, "snapshot");
	close(fd);
	OK(pawl_engine_destroy(e));
	e = asleep();
	ck_assert(!has_socket(pid));
	if (!geteuid()) {
		pid = child_fork();
		if (!pid) {
			MUST(!seteuid(65534));
			MUST(client(getppid()) < 0);
			_exit(0);
		}
		MUST(waitpid(pid, NULL, 0) == pid);
	}
	OK(pawl_engine_destroy(e));
	folder_remove();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("publish");
	TCase *t = tcase_create("publish");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_a_folder_that_others_may_enter_is_refused);
	tcase_add_test(t, test_a_thread_serves_while_there_is_a_client);
	tcase_add_test(t, test_what_a_snapshot_says);
	tcase_add_test(t, test_the_socket_lives_as_long_as_an_engine);
	tcase_add_test(t, test_children);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
