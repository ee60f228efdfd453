// SPDX-License-Identifier: Apache-2.0
/*
 * core/publish.c: what a process tells of its engines, whom, and what is left of it; the JSON of
 * core/snapshot.c.  Each test has a folder of its own for the sockets.
 */
#include "util.h"
#include "child.h"
#include <dirent.h>
#include <fcntl.h>
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

/* Send the request with an open file, or -1, and return the answer. */
static const char *ask_with(int fd, const char *request, int file)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } control = {
		.h = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
		       .cmsg_type = SCM_RIGHTS } };
	struct iovec part = { (void *)(uintptr_t)request, strlen(request) };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	if (file >= 0) {
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
		memcpy(CMSG_DATA(&control.h), &file, sizeof(file));
	}
	MUST(sendmsg(fd, &m, 0) >= 0);
	n = recv(fd, text, sizeof(text) - 1, 0);
	MUST(n > 0);
	text[n] = 0;
	return text;
}

static const char *ask(int fd, const char *request)
{
	return ask_with(fd, request, -1);
}

#define ANSWERS(answer, words) \
	ck_assert_msg(strstr(answer, words) != NULL, "no %s in %s", words, text)

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

/* What PAWL_PUBLISH may name, and what else there is in the folder. */
START_TEST(test_which_folders_are_refused)
{
	static const struct {
		const char *name;
		mode_t mode;
		int rc;
	} row[] = {
		{ "", 0710, -EPERM }, { "/file", 0700, -ENOTDIR }, { "/link", 0700, -ENOTDIR },
		{ "/none/none", 0700, -ENOENT }, { "", 0700, 0 },
	};
	struct pawl_engine *e;
	char path[300];
	size_t i;

	folder_make();
	MUST(!chmod(folder, 0755));
	ck_assert_int_eq(pawl_publish(true), -EPERM);
	memset(path, '/', 200);
	path[200] = 0;
	MUST(!setenv("PAWL_PUBLISH", path, 1));
	ck_assert_int_eq(pawl_publish(true), -ENAMETOOLONG);
	snprintf(path, sizeof(path), "%s/file", folder);
	MUST(!close(open(path, O_CREAT | O_WRONLY, 0600)));
	snprintf(path, sizeof(path), "%s/link", folder);
	MUST(!symlink(folder, path));
	for (i = 0; i < ARRAY_SIZE(row); i++) {
		MUST(!chmod(folder, row[i].mode));
		snprintf(path, sizeof(path), "%s%s", folder, row[i].name);
		MUST(!setenv("PAWL_PUBLISH", path, 1));
		ck_assert_int_eq(pawl_publish(true), row[i].rc);
		/* An engine that cannot be published works. */
		e = asleep();
		ck_assert_int_eq(has_socket(getpid()), !row[i].rc);
		OK(pawl_engine_destroy(e));
		OK(pawl_publish(false));
	}
	snprintf(path, sizeof(path), "%s/file", folder);
	MUST(!unlink(path));
	snprintf(path, sizeof(path), "%s/link", folder);
	MUST(!unlink(path));
	folder_remove();
	/* The folder of the user's session, or one in memory. */
	MUST(!setenv("PAWL_PUBLISH", "1", 1));
	OK(pawl_publish(true));
	OK(pawl_publish(false));
	MUST(!unsetenv("PAWL_PUBLISH"));
}
END_TEST

START_TEST(test_a_ninth_client_is_sent_away)
{
	struct pawl_engine *e;
	int fd[9], i;
	char c;

	folder_make();
	e = asleep();
	for (i = 0; i < 9; i++) {
		fd[i] = client(getpid());
		if (i < 8)
			ANSWERS(ask(fd[i], "snapshot"), "\"completed\":");
	}
	ck_assert_int_eq(recv(fd[8], &c, 1, 0), 0);
	/* The engine ends before its clients. */
	OK(pawl_engine_destroy(e));
	for (i = 0; i < 9; i++)
		close(fd[i]);
	folder_remove();
}
END_TEST

#ifdef CONFIG_TRACE
static u64 size_of(const char *path)
{
	struct stat st;

	MUST(!stat(path, &st));
	return (u64)st.st_size;
}

START_TEST(test_a_client_traces)
{
	struct pawl_engine *e, *later;
	int fd, other, file, ends[2];
	char path[64], *rest;
	char request[64];

	strcpy(path, temp_path());
	folder_make();
	e = asleep();
	fd = client(getpid());
	other = client(getpid());
	ANSWERS(ask(fd, "trace stop"), "\"error\":22");
	ANSWERS(ask(fd, "trace start 4000000000"), "\"error\":");
	ANSWERS(ask(fd, "trace start 0"), "\"traced\":1");
	ANSWERS(ask(other, "trace start 64"), "\"error\":16");
	ANSWERS(ask(other, "trace stop"), "\"error\":22");
	ANSWERS(ask(other, "snapshot"), "\"tracing\":1");
	later = asleep();
	ANSWERS(ask(other, "snapshot"), "},{\"engine\":");
	ANSWERS(ask(fd, "trace write 1"), "\"error\":");
	ANSWERS(ask(fd, "trace stop"), ",");
	MUST(strtoul(strchr(text, '[') + 1, &rest, 10));
	snprintf(request, sizeof(request), "trace write %s", rest + 1);
	ANSWERS(ask(fd, request), "\"error\":9");
	file = open(path, O_WRONLY);
	ANSWERS(ask_with(fd, request, file), "\"written\":");
	ck_assert_uint_gt(size_of(path), 0);
	ANSWERS(ask_with(fd, "trace write 123456", file), "\"error\":3");
	ANSWERS(ask_with(fd, "dance", file), "\"error\":22");
	close(file);
	file = open("/dev/full", O_WRONLY);
	ANSWERS(ask_with(fd, request, file), "\"error\":28");
	close(file);
	MUST(!pipe(ends));
	ANSWERS(ask_with(fd, request, ends[1]), "\"error\":22");
	close(ends[0]);
	close(ends[1]);
	/* When a client leaves whose trace has ended, the program's own goes on. */
	OK(pawl_trace_start(e, 64));
	close(fd);
	ck_assert(soon(!strstr(ask(other, "trace start 64"), "\"error\"")));
	ANSWERS(text, "\"traced\":1");
	ck_assert_int_eq(pawl_trace_write(e, path), -EBUSY);
	OK(pawl_trace_stop(e));
	OK(pawl_trace_write(e, path));
	/* A trace ends with its client, and another one may begin. */
	ANSWERS(ask(other, "trace stop"), "\"engines\":");
	ANSWERS(ask(other, "trace start 64"), "\"traced\":2");
	close(other);
	other = client(getpid());
	ck_assert(soon(!strstr(ask(other, "trace start 64"), "\"error\"")));
	ANSWERS(text, "\"traced\":2");
	OK(pawl_engine_destroy(later));
	OK(pawl_engine_destroy(e));
	close(other);
	MUST(!unlink(path));
	folder_remove();
}
END_TEST
#endif

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
	tcase_add_test(t, test_which_folders_are_refused);
	tcase_add_test(t, test_a_thread_serves_while_there_is_a_client);
	tcase_add_test(t, test_a_ninth_client_is_sent_away);
	tcase_add_test(t, test_what_a_snapshot_says);
#ifdef CONFIG_TRACE
	tcase_add_test(t, test_a_client_traces);
#endif
	tcase_add_test(t, test_the_socket_lives_as_long_as_an_engine);
	tcase_add_test(t, test_children);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
