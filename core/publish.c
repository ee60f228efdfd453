// SPDX-License-Identifier: Apache-2.0
/*
 * Published engines: other processes of the same user may observe them, and trace them.
 *
 * Structures: while there is a published engine, the process listens on a socket of its own,
 * named by its process id, in a folder that only its user can enter.  A client sends a request,
 * one packet, and receives one packet of JSON.  Documentation/top.md has the requests.
 *
 * There is no thread for that until a client connects.  A thread that sleeps in the engine wakes
 * twice a second to look for one (exec_config.look_ns); a thread that takes work, or has run out
 * of it, looks as often, by a clock that it has read anyway.  The first one that finds a client
 * starts a thread, which serves clients until none has been connected for a second.  So an op
 * stores nothing and reads no clock, and the counters are the engine's own, read by the thread
 * that serves.
 *
 * Others: the folder has mode 0700 and is refused if another user owns it or may enter it.  Each
 * connection is checked, too: only the process's own user, and root, are served.  A client that
 * does not read its answers is disconnected.  A trace is written to a file that the client opened.
 *
 * Ordering: CORE-S1 (unlock, release) <-> CORE-S2 (lock): all that the lock protects.
 *   CORE-S3 (publisher, release) <-> CORE-S4 (look): its fields.  It exists as long as there is a
 *   published engine, so also as long as a thread of one looks.
 *   CORE-S5 (a server ends) <-> CORE-S6 (the next one is started): the clients.
 *
 * fork(): the child closes what it has inherited, and publishes only engines that it creates.
 *
 * Progress: publish_look() is wait-free, with system calls: one that polls the socket, at most four
 * times a second for each engine, and those that start a thread.  The rest is blocking: creation and destruction of engines, and the server.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <base/futex.h>
#include <core/insight.h>
#include <core/publish.h>
#include <core/thread.h>
#include <core/trace.h>

#define CLIENTS		8u
#define TEXT_BYTES	131072u
#define LINGER_MS	1000
#define EVENTS_DEFAULT	65536u
#define FOLDER_BYTES	80u

enum { TRACE_NONE, TRACE_RUNS, TRACE_ENDED };

/* Fields without a mark are protected by the lock. */
struct publisher {
	int listener, stop;	/* I */
	u32 serving;		/* A: the server runs */
	bool made;		/* O, by the thread that set `serving`: a server was started */
	os_thread server;	/* O, likewise */
	int client[CLIENTS];	/* O, the server: -1: none */
	int tracer;		/* O, the server: the client that began a trace, or -1 */
	u32 users;		/* engines */
	struct sockaddr_un at;	/* I */
	char text[TEXT_BYTES];	/* O, the server */
};

static u32 lock;			/* A, futex */
static struct publisher *publisher;	/* A: changed under the lock */
static struct pawl_engine *engines;	/* W(lock) */
static u32 trace_events;		/* W(lock): also of engines that begin; 0: none */
static u32 wanted;			/* A: pawl_publish() */
static u32 warned;			/* A */

static void publish_lock(void)
{
	while (xchg_acq_rel(&lock, 1))	/* CORE-S2 <-> CORE-S1 */
		futex_wait(&lock, 1, 0);
}

static void publish_unlock(void)
{
	store_release(&lock, 0);	/* CORE-S1 <-> CORE-S2 */
	futex_wake(&lock);
}

/* --- the folder --- */

/* Open a folder that no other user can change.  Returns its descriptor or an error. */
static int folder_check(const char *path, bool make)
{
	struct stat st;
	int fd;

	if (make && mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 077)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* The folder that the environment names, or that of the user's session, or one in memory. */
static int folder_open(char *path)
{
	const char *env = secure_getenv("PAWL_PUBLISH");
	unsigned int user = (unsigned int)geteuid();
	int fd = -ENOENT;

	if (env && *env == '/') {
		if (strlen(env) >= FOLDER_BYTES)
			return err(-ENAMETOOLONG, "publish: PAWL_PUBLISH is too long");
		strcpy(path, env);
		fd = folder_check(path, true);
	} else {
		snprintf(path, FOLDER_BYTES, "/run/user/%u", user);
		fd = folder_check(path, false);
		if (fd >= 0) {
			close(fd);
			snprintf(path, FOLDER_BYTES, "/run/user/%u/pawl", user);
			fd = folder_check(path, true);
		}
		if (fd < 0) {
			snprintf(path, FOLDER_BYTES, "/dev/shm/pawl-%u", user);
			fd = folder_check(path, true);
		}
	}
	return fd >= 0 ? fd : err(fd, "publish: %s: %s", path, fd == -EPERM ?
				  "another user owns it, or may enter it" : strerror(-fd));
}

static void address(struct sockaddr_un *at, const char *folder, long pid)
{
	at->sun_family = AF_UNIX;
	snprintf(at->sun_path, sizeof(at->sun_path), "%s/%ld", folder, pid);
}

/* Does no process listen there? */
static bool is_stale(const struct sockaddr_un *at)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool stale = fd >= 0 && connect(fd, (const void *)at, sizeof(*at)) && errno == ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return stale;
}

/* Remove the sockets of processes that have ended.  Closes fd. */
static void folder_clean(int fd, const char *folder)
{
	DIR *d = fdopendir(fd);
	struct sockaddr_un at;
	struct dirent *f;
	char *end;
	long pid;

	if (!d) {
		close(fd);
		return;
	}
	while ((f = readdir(d))) {
		pid = strtol(f->d_name, &end, 10);
		if (pid <= 0 || *end || !kill((pid_t)pid, 0) || errno != ESRCH)
			continue;
		address(&at, folder, pid);
		if (is_stale(&at))
			unlink(at.sun_path);
	}
	closedir(d);
}

/* --- the server --- */

static void client_drop(struct publisher *p, int *fd)
{
	struct pawl_engine *e;

	if (p->tracer == *fd) {
		p->tracer = -1;
		publish_lock();
		trace_events = 0;
		for (e = engines; e; e = e->next_published) {
			/* After its end a trace that runs is not the client's. */
			if (e->traced == TRACE_RUNS)
				pawl_trace_stop(e);
			e->traced = TRACE_NONE;
		}
		publish_unlock();
	}
	close(*fd);
	store_relaxed(fd, -1);
}

static void client_add(struct publisher *p)
{
	int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), size = TEXT_BYTES * 2;
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;
	u32 i;

	if (fd < 0)
		return;
	for (i = 0; i < CLIENTS && p->client[i] >= 0; i++)
		;
	if (i == CLIENTS || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) ||
	    (peer.uid && peer.uid != geteuid())) {
		close(fd);
		return;
	}
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	store_relaxed(&p->client[i], fd);
}

static void answer_error(struct text *t, int rc)
{
	t->len = 0;
	text_add(t, "{\"error\":%d,\"text\":", -rc);
	snapshot_string(t, err_text());
	text_add(t, "}");
}

static void answer_snapshot(struct text *t)
{
	struct pawl_engine *e;
	size_t len;
	bool more = false, first = true;

	text_add(t, "{\"pawl\":\"" PAWL_VERSION_STRING "\",\"format\":1,\"pid\":%d,\"program\":",
		 (int)getpid());
	snapshot_string(t, program_invocation_short_name);
	text_add(t, ",\"ns\":%llu,\"engines\":[", (unsigned long long)exec_now_ns());
	publish_lock();
	for (e = engines; e && !more; e = e->next_published) {
		len = t->len;
		text_add(t, "%s", first ? "" : ",");
		snapshot_engine(t, e);
		first = false;
		more = t->len + 64 > t->size;
		if (more)
			t->len = len;
	}
	publish_unlock();
	text_add(t, "],\"more\":%s}", more ? "true" : "false");
}

static int trace_begin(struct pawl_engine *e)
{
	int rc = pawl_trace_start(e, trace_events);

	if (!rc)
		e->traced = TRACE_RUNS;
	return rc;
}

static void answer_start(struct publisher *p, int fd, struct text *t, unsigned int n)
{
	struct pawl_engine *e;
	u32 traced = 0;
	int rc = 0, one;

	if (p->tracer >= 0 && p->tracer != fd) {
		answer_error(t, err(-EBUSY, "another client traces the process"));
		return;
	}
	publish_lock();
	trace_events = n ? n : EVENTS_DEFAULT;
	for (e = engines; e; e = e->next_published) {
		one = trace_begin(e);
		rc = rc ? rc : one;
		traced += !one;
	}
	if (rc && !traced)
		trace_events = 0;
	publish_unlock();
	if (rc && !traced) {
		answer_error(t, rc);
		return;
	}
	p->tracer = fd;
	text_add(t, "{\"traced\":%u}", traced);
}

static void answer_stop(struct text *t)
{
	struct pawl_engine *e;
	bool first = true;

	text_add(t, "{\"engines\":[");
	publish_lock();
	trace_events = 0;
	for (e = engines; e; e = e->next_published) {
		if (!e->traced)
			continue;
		if (e->traced == TRACE_RUNS)
			pawl_trace_stop(e);
		e->traced = TRACE_ENDED;
		text_add(t, "%s%llu", first ? "" : ",", (unsigned long long)e->id);
		first = false;
	}
	publish_unlock();
	text_add(t, "]}");
}

/* A pipe could keep the thread from going on, and raise SIGPIPE. */
static int file_check(int file)
{
	struct stat st;

	if (file < 0 || fstat(file, &st))
		return err(-EBADF, "no file came with the request");
	return S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) ?
	       err(-EINVAL, "a trace is not written to a pipe or a socket") : 0;
}

static void answer_write(struct text *t, u64 id, int file)
{
	struct pawl_engine *e;
	int rc = -ESRCH;

	publish_lock();
	for (e = engines; e && (e->id != id || !e->traced); e = e->next_published)
		;
	if (e) {
		rc = file_check(file);
		if (!rc) {
			rc = trace_write_fd(e, file);
			file = -1;
		}
	} else {
		err(rc, "engine %llu is not traced", (unsigned long long)id);
	}
	publish_unlock();
	if (file >= 0)
		close(file);
	if (rc)
		answer_error(t, rc);
	else
		text_add(t, "{\"written\":%llu}", (unsigned long long)id);
}

static void answer(struct publisher *p, int fd, const char *request, int file)
{
	struct text t = { p->text, sizeof(p->text), 0 };
	unsigned long long n;

	if (!strcmp(request, "snapshot")) {
		answer_snapshot(&t);
	} else if (!strncmp(request, "trace start ", 12)) {
		answer_start(p, fd, &t, (unsigned int)strtoul(request + 12, NULL, 10));
	} else if (p->tracer == fd && !strcmp(request, "trace stop")) {
		answer_stop(&t);
	} else if (p->tracer == fd && sscanf(request, "trace write %llu", &n) == 1) {
		answer_write(&t, n, file);
		file = -1;
	} else {
		answer_error(&t, err(-EINVAL, "publish: no request '%s'", request));
	}
	if (file >= 0)
		close(file);
	if (send(fd, t.buf, min_u(t.len, t.size - 1), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		shutdown(fd, SHUT_RDWR);
}

/* Read a request and answer it.  Returns false if the client has left. */
static bool client_serve(struct publisher *p, int fd)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } control;
	char request[128];
	struct iovec part = { request, sizeof(request) - 1 };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	int file = -1;

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&file, CMSG_DATA(c), sizeof(file));
	request[n] = 0;
	answer(p, fd, request, file);
	return true;
}

static void *server_main(void *arg)
{
	struct publisher *p = arg;
	struct pollfd f[2 + CLIENTS];
	u32 i, clients;
	int n;

	os_thread_name("pawl-publish");
	for (;;) {
		f[0] = (struct pollfd){ .fd = p->stop, .events = POLLIN };
		f[1] = (struct pollfd){ .fd = p->listener, .events = POLLIN };
		for (i = 0, clients = 0; i < CLIENTS; i++) {
			f[2 + i] = (struct pollfd){ .fd = p->client[i], .events = POLLIN };
			clients += p->client[i] >= 0;
		}
		n = poll(f, ARRAY_SIZE(f), clients ? -1 : LINGER_MS);
		if (f[0].revents || (!n && !clients) || (n < 0 && errno != EINTR))
			break;
		if (n < 0)
			continue;
		for (i = 0; i < CLIENTS; i++)
			if (f[2 + i].revents && !client_serve(p, p->client[i]))
				client_drop(p, &p->client[i]);
		if (f[1].revents)
			client_add(p);
	}
	for (i = 0; i < CLIENTS; i++)
		if (p->client[i] >= 0)
			client_drop(p, &p->client[i]);
	store_release(&p->serving, 0);	/* CORE-S5 <-> CORE-S6 */
	return NULL;
}

void publish_look(void *user)
{
	const struct os_thread_attr attr = { .policy = -1 };
	struct publisher *p = load_acquire(&publisher);	/* CORE-S4 <-> CORE-S3 */
	struct pollfd f = { .fd = p->listener, .events = POLLIN };
	u32 idle = 0;

	/* CORE-S6 <-> CORE-S5 */
	if (poll(&f, 1, 0) <= 0 || !cas_acquire(&p->serving, &idle, 1))
		return;
	if (p->made)
		os_thread_join(p->server);
	p->made = !os_thread_start(&p->server, &attr, server_main, p);
	if (!p->made)
		store_release(&p->serving, 0);	/* CORE-S5 <-> CORE-S6 */
}

/* --- engines --- */

static bool publish_wanted(void)
{
	const char *env = secure_getenv("PAWL_PUBLISH");

	return env && *env ? strcmp(env, "0") != 0 : load_relaxed(&wanted);
}

static struct publisher *publisher_new(void)
{
	struct publisher *p = calloc(1, sizeof(*p));
	char folder[FOLDER_BYTES];
	int fd;
	u32 i;

	if (!p) {
		err(-ENOMEM, "publish: no memory");
		return NULL;
	}
	for (i = 0; i < CLIENTS; i++)
		p->client[i] = -1;
	p->tracer = -1;
	p->listener = p->stop = -1;
	fd = folder_open(folder);
	if (fd < 0)
		goto fail;
	folder_clean(fd, folder);
	address(&p->at, folder, (long)getpid());
	if (is_stale(&p->at))
		unlink(p->at.sun_path);
	p->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->stop < 0 || p->listener < 0 ||
	    bind(p->listener, (const void *)&p->at, sizeof(p->at)) ||
	    chmod(p->at.sun_path, 0600) || listen(p->listener, (int)CLIENTS)) {
		err(-errno, "publish: %s: %s", p->at.sun_path, strerror(errno));
		goto fail;
	}
	return p;
fail:
	if (p->stop >= 0)
		close(p->stop);
	if (p->listener >= 0)
		close(p->listener);
	free(p);
	return NULL;
}

bool publish_open(void)
{
	struct publisher *p;

	if (!publish_wanted() || thread_setup())
		return false;
	publish_lock();
	p = load_relaxed(&publisher);
	if (!p) {
		p = publisher_new();
		if (!p) {
			publish_unlock();
			/* An engine that is not published works. */
			if (!xchg_relaxed(&warned, 1))
				fprintf(stderr, "pawl: %s; the engine is not published\n", err_text());
			return false;
		}
		store_release(&publisher, p);	/* CORE-S3 <-> CORE-S4 */
	}
	p->users++;
	publish_unlock();
	return true;
}

void publish_close(void)
{
	struct publisher *p;
	u64 one = 1;

	publish_lock();
	p = load_relaxed(&publisher);
	if (!p || --p->users) {
		publish_unlock();
		return;
	}
	unlink(p->at.sun_path);
	store_release(&publisher, NULL);	/* CORE-S3 <-> CORE-S4 */
	publish_unlock();
	if (p->made) {
		if (write(p->stop, &one, sizeof(one)) < 0)
			shutdown(p->listener, SHUT_RDWR);
		os_thread_join(p->server);
	}
	close(p->stop);
	close(p->listener);
	free(p);
}

void publish_engine(struct pawl_engine *e)
{
	struct pawl_engine **last = &engines;

	if (!e->published)
		return;
	publish_lock();
	while (*last)
		last = &(*last)->next_published;
	*last = e;
	if (trace_events)
		trace_begin(e);
	publish_unlock();
}

void publish_engine_end(struct pawl_engine *e)
{
	struct pawl_engine **p = &engines;

	if (!e->published)
		return;
	publish_lock();
	while (*p && *p != e)
		p = &(*p)->next_published;
	if (*p)
		*p = e->next_published;
	publish_unlock();
}

/* The child has one thread, so no order is needed. */
void publish_fork_child(void)
{
	struct publisher *p = publisher;
	u32 i;

	if (p) {
		close(p->listener);
		close(p->stop);
		for (i = 0; i < CLIENTS; i++)
			if (load_relaxed(&p->client[i]) >= 0)
				close(load_relaxed(&p->client[i]));
		free(p);
	}
	publisher = NULL;
	engines = NULL;
	trace_events = 0;
	store_relaxed(&lock, 0);
}

/* The program ends with engines that it has not destroyed. */
__attribute__((destructor)) static void publish_fini(void)
{
	struct publisher *p = load_relaxed(&publisher);

	if (p)
		unlink(p->at.sun_path);
}

int pawl_publish(bool on)
{
	char folder[FOLDER_BYTES];
	int fd;

	if (on) {
		fd = folder_open(folder);
		if (fd < 0)
			return fd;
		close(fd);
	}
	store_relaxed(&wanted, on);
	return 0;
}
PAWL_EXPORT(pawl_publish);
