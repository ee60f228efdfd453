// SPDX-License-Identifier: Apache-2.0
/*
 * Threads, start and stop.
 *
 * SIGTERM and SIGINT: health/ready answers 400 and connections end with their next answer, so
 * that a load balancer and clients use another server.  After the grace time the listeners
 * close, requests that have arrived are answered, and the process ends with status 0.  A second
 * signal skips the rest of the grace time.  SIGHUP reads the repository again.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "serve.h"

#define EVENTS		256
#define ACCEPTS		64		/* of a listener in a turn */
#define REAP		64
#define TICK_NS		1000000000u
#define SCRATCH		65536u
#define SMALL_AS	((rlim_t)4 << 30) /* a limit of the address space (ulimit -v) */
#define FIRST_FD	3		/* of socket activation */

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- a loop -------------------------------------------------------------------- */

static void counted(struct msg *m)
{
	*(unsigned int *)m->arg += 1;
}

static void take(struct msg *m)
{
	struct loop *l = m->arg;

	l->table = l->next_table;
	l->secrets += memcmp(l->token, l->next_token, sizeof(l->token)) != 0;
	memcpy(l->token, l->next_token, sizeof(l->token));
	l->trace = l->next_trace;
	h2_told(l);
	port_send(&l->sv->port, &l->took, counted, &l->sv->took);
}

static void close_listeners(struct loop *l)
{
	unsigned int k;

	for (k = 0; k < LISTENERS; k++) {
		if (l->listener[k] < 0)
			continue;
		conn_accept(l, k, SOMAXCONN);	/* what the kernel has accepted */
		close(l->listener[k]);
		l->listener[k] = -1;
	}
}

static void begin_drain(struct msg *m)
{
	struct loop *l = m->arg;

	close_listeners(l);
	l->draining = true;
	conn_drain(l);
	l->report = true;
}

/*
 * The time to drain has passed: what is left is canceled.  A load cannot be, and the process
 * waits for it, so its client still has the answer.
 */
static void force(struct msg *m)
{
	struct loop *l = m->arg;
	struct conn *c, *next;
	int k;

	for (k = 0; k < TIMERS; k++)
		for (c = l->timer_head[k]; c; c = next) {
			next = c->next;
			if (!c->control && !(c->h2 && h2_cancel(c)))
				conn_close(c);
		}
}

static void leave(struct msg *m)
{
	struct loop *l = m->arg;

	l->exiting = true;
}

static void bury(struct loop *l)
{
	struct conn *c;

	while ((c = l->all_dead)) {
		l->all_dead = c->dead_next;
		free(c);
	}
}

static void reap(struct loop *l)
{
	struct pawl_completion done[REAP];
	int i, n;

	do {
		n = pawl_cq_reap(l->sv->e[WORKERS], l->cq[WORKERS], done, REAP);
		for (i = 0; i < n; i++)
			sched_complete((struct slot *)(uintptr_t)done[i].tag, done[i].status);
	} while (n == REAP);
}

static int wait_events(struct loop *l, struct epoll_event *ev, uint64_t until)
{
	uint64_t now = now_ns(), left = until > now ? until - now : 0;
	struct timespec ts = { (time_t)(left / 1000000000u), (long)(left % 1000000000u) };
	static __thread bool old_kernel;
	int n;

	if (!old_kernel) {
		n = epoll_pwait2(l->ep, ev, EVENTS, &ts, NULL);
		/* ENOSYS, or what a filter of system calls answers instead */
		if (n >= 0 || errno == EINTR)
			return n;
		old_kernel = true;
	}
	return epoll_wait(l->ep, ev, EVENTS, (int)((left + 999999) / 1000000));
}

uint64_t loop_step(struct loop *l)
{
	uint64_t next = 0;

	conn_again(l);
	if (!l->index)
		l->sv->light_end = 0;
	do {
		port_run(&l->port);
		if (!l->index) {
			reap(l);
			next = sched_run(l->sv, l->now);
		}
		h2_flush(l);
	} while (l->port.own);
	bury(l);
	return next;
}

static int watch(struct loop *l, int fd, uint32_t events, void *ptr)
{
	struct epoll_event ev = { .events = events, .data.ptr = ptr };

	return epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/*
 * A turn begins.  The clock of the timers counts the time in which this loop could have read
 * what arrived: after a stop of the process, or a long turn, it continues where it was.
 */
static void pass_time(struct loop *l)
{
	uint64_t now = now_ns(), passed = now - l->now;

	l->clock += l->now && passed > 2 * TICK_NS ? 2 * TICK_NS : passed;
	l->now = now;
}

static void *loop_main(void *arg)
{
	struct epoll_event ev[EVENTS];
	struct loop *l = arg;
	struct server *sv = l->sv;
	uint64_t next = 0, tick = 0, until;
	unsigned int k;
	int i, n;

	this_port = &l->port;
	pass_time(l);
	/* a plan has no request that waits for it, if all clients have gone */
	while (!l->exiting || (!l->index && sv->inflight)) {
		until = l->again ? 0 : l->now + TICK_NS;
		if (next && next < until)
			until = next;
		n = wait_events(l, ev, until);
		pass_time(l);
		for (i = 0; i < n; i++) {
			if (ev[i].data.ptr == &l->port)
				port_clear(&l->port);
			else if (ev[i].data.ptr == &l->listener[LISTEN_HTTP])
				conn_accept(l, LISTEN_HTTP, ACCEPTS);
			else if (ev[i].data.ptr == &l->listener[LISTEN_GRPC])
				conn_accept(l, LISTEN_GRPC, ACCEPTS);
			else if (ev[i].data.ptr == &l->listener[LISTEN_ADMIN])
				conn_accept(l, LISTEN_ADMIN, ACCEPTS);
			else if (ev[i].data.ptr != &l->cq)
				conn_event(ev[i].data.ptr, ev[i].events);
		}
		if (l->now >= tick) {
			conn_tick(l);
			buf_tick(l);
			if (!l->index)
				slots_tick(sv, l->now);
			tick = l->now + TICK_NS / 4;
			for (k = 0; k < LISTENERS; k++)
				if (l->listening_paused[k] && l->listener[k] >= 0)
					l->listening_paused[k] = watch(
						l, l->listener[k], EPOLLIN, &l->listener[k]);
		}
		next = loop_step(l);
		if (l->report && !l->nconns && !load_relaxed(&l->busy)) {
			l->report = false;
			port_send(&sv->port, &l->drained, counted, &sv->drained);
		}
	}
	loop_step(l);
	for (k = 0; k < ENGINES; k++)
		pawl_thread_detach(sv->e[k]);
	return NULL;
}

/* --- listeners ----------------------------------------------------------------- */

static int failed(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s: %s\n", SERVE_SELF, what, why);
	return -EIO;
}

/* How many sockets systemd opened: the first for HTTP, the second for gRPC. */
static int inherited(void)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");

	return pid && n && atoi(pid) == getpid() ? atoi(n) : 0;
}

static int failed_port(const char *host, unsigned int port)
{
	char text[300];

	snprintf(text, sizeof(text), "%s, port %u", host, port);
	return failed(text, strerror(errno));
}

static int listen_on(const char *host, unsigned int *port)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST,
				  .ai_socktype = SOCK_STREAM };
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	struct addrinfo *ai;
	char text[16];
	int fd, rc, on = 1;

	snprintf(text, sizeof(text), "%u", *port);
	rc = getaddrinfo(host, text, &hints, &ai);
	if (rc)
		return failed(host, gai_strerror(rc));
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	rc = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) ||
		bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, SOMAXCONN) ||
		getsockname(fd, (struct sockaddr *)&ss, &len);
	freeaddrinfo(ai);
	if (rc) {
		rc = failed_port(host, *port);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	*port = ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port :
		      ((struct sockaddr_in *)&ss)->sin_port);
	return fd;
}

/*
 * SO_REUSEPORT lets each loop have a listener, but also lets another process of the same user
 * take a share of the port.  So a port that is in use already is an error.
 */
static int port_is_free(const char *host, unsigned int port)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *ai;
	char text[16];
	int fd, rc, on = 1;

	if (!port)
		return 0;
	snprintf(text, sizeof(text), "%u", port);
	rc = getaddrinfo(host, text, &hints, &ai);
	if (rc)
		return failed(host, gai_strerror(rc));
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		bind(fd, ai->ai_addr, ai->ai_addrlen);
	if (rc)
		rc = failed_port(host, port);
	if (fd >= 0)
		close(fd);
	freeaddrinfo(ai);
	return rc;
}

/* The listeners of one kind, one per loop.  fd: a socket that was inherited, or -1. */
static int open_listeners(struct server *sv, unsigned int kind, int fd, unsigned int *port)
{
	unsigned int i;
	int rc;

	if (fd < 0) {
		rc = port_is_free(sv->cfg.host, *port);
		if (rc)
			return rc;
	}
	for (i = 0; i < sv->cfg.loops; i++) {
		struct loop *l = &sv->loops[i];

		if (fd >= 0) {
			l->listener[kind] = i ? dup(fd) : fd;
			if (l->listener[kind] < 0)
				return failed("socket activation", strerror(errno));
			int flags = fcntl(l->listener[kind], F_GETFL);

			if (flags < 0 ||
			    fcntl(l->listener[kind], F_SETFL, flags | O_NONBLOCK) ||
			    fcntl(l->listener[kind], F_SETFD, FD_CLOEXEC))
				return failed("socket activation", strerror(errno));
		} else {
			l->listener[kind] = listen_on(sv->cfg.host, port);
			if (l->listener[kind] < 0)
				return l->listener[kind];
		}
		/* listeners of one socket: a connection wakes one loop */
		rc = watch(l, l->listener[kind],
			   EPOLLIN | (fd >= 0 ? (uint32_t)EPOLLEXCLUSIVE : 0),
			   &l->listener[kind]);
		if (rc)
			return failed("epoll", strerror(-rc));
	}
	return 0;
}

/* Whether nobody but this machine reaches a listener. */
static bool is_local(int fd)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_storage room;
	} a = { .sa = { .sa_family = AF_UNSPEC } };
	socklen_t len = sizeof(a);

	if (getsockname(fd, &a.sa, &len))
		return false;
	return a.sa.sa_family == AF_UNIX ||
		(a.sa.sa_family == AF_INET && ntohl(a.in.sin_addr.s_addr) >> 24 == 127) ||
		(a.sa.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a.in6.sin6_addr));
}

static int listen_unix(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd, rc, old;
	mode_t mask;

	if (strlen(path) >= sizeof(sun.sun_path))
		return failed(path, "the path is too long for a socket");
	strcpy(sun.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return failed(path, strerror(errno));
	/* what a process left that ended without a chance to remove it */
	old = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (old >= 0 && connect(old, (struct sockaddr *)&sun, sizeof(sun)) &&
	    errno == ECONNREFUSED)
		unlink(path);
	if (old >= 0)
		close(old);
	/* its permissions are those of the process' user alone */
	mask = umask(0177);
	rc = bind(fd, (struct sockaddr *)&sun, sizeof(sun));
	umask(mask);
	if (rc || listen(fd, SOMAXCONN)) {
		failed(path, strerror(errno));
		close(fd);
		return -EIO;
	}
	return fd;
}

static const char unix_prefix[] = "unix:";

/* The path of a socket, or NULL. */
static const char *unix_path(const char *admin)
{
	size_t n = sizeof(unix_prefix) - 1;

	return admin && !strncmp(admin, unix_prefix, n) ? admin + n : NULL;
}

/* The listener of --admin, on loop 0, and what the address for inference serves beside it. */
static int open_admin(struct server *sv)
{
	const char *path = unix_path(sv->cfg.admin), *colon;
	struct loop *l = &sv->loops[0];
	char host[256];
	unsigned int port;
	int rc;

	strcpy(sv->admin, "none");
	sv->metrics = !sv->cfg.admin || sv->cfg.control == CONTROL_ON;
	sv->control = sv->cfg.control == CONTROL_ON ||
		(sv->cfg.control == CONTROL_LOCAL && !sv->cfg.admin &&
		 is_local(l->listener[LISTEN_HTTP]));
	if (!sv->cfg.admin)
		return 0;
	if (path) {
		rc = listen_unix(path);
	} else {
		/* cmd.c has checked its form */
		colon = strrchr(sv->cfg.admin, ':');
		snprintf(host, sizeof(host), "%.*s", (int)(colon - sv->cfg.admin),
			 sv->cfg.admin);
		if (*host == '[')
			snprintf(host, sizeof(host), "%.*s", (int)(colon - sv->cfg.admin) - 2,
				 sv->cfg.admin + 1);
		port = (unsigned int)strtoul(colon + 1, NULL, 10);
		rc = port_is_free(host, port);
		if (!rc)
			rc = listen_on(host, &port);
	}
	if (rc < 0)
		return rc;
	l->listener[LISTEN_ADMIN] = rc;
	if (!path && !sv->cfg.token[TOKEN_ADMIN] && !is_local(rc))
		return failed(sv->cfg.admin, "without an admin_token it has to be an address of "
			      "the loopback device, or unix:PATH");
	if (path)
		snprintf(sv->admin, sizeof(sv->admin), "%s", sv->cfg.admin);
	else
		snprintf(sv->admin, sizeof(sv->admin), "%.*s%u",
			 (int)(strrchr(sv->cfg.admin, ':') + 1 - sv->cfg.admin),
			 sv->cfg.admin, port);
	rc = watch(l, l->listener[LISTEN_ADMIN], EPOLLIN, &l->listener[LISTEN_ADMIN]);
	return rc ? failed("epoll", strerror(-rc)) : 0;
}

/* --- systemd ------------------------------------------------------------------- */

/* sd_notify(3): one datagram to the socket that the service manager names. */
void notify(const char *state)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (!n || n >= sizeof(sun.sun_path))
		return;
	memcpy(sun.sun_path, path, n);
	if (*path == '@')
		sun.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&sun,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		log_line("warning", "notify", "error", strerror(errno), NULL);
	close(fd);
}

/* --- the main thread ------------------------------------------------------------ */

/*
 * The signals are blocked here, and in threads that this one creates.  Libraries that the program
 * is linked with, for example OpenBLAS, start threads before main(), in which they are not
 * blocked: there the default action would end the process.
 */
static pthread_t main_thread;

static void hand_over(int sig)
{
	pthread_kill(main_thread, sig);
}

static int block_signals(void)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	struct sigaction sa = { .sa_handler = hand_over, .sa_flags = SA_RESTART };
	sigset_t set;
	size_t i;

	main_thread = pthread_self();
	sigemptyset(&set);
	for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&set, signals[i]);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Wait for a message or a signal; returns the signal, or 0. */
static int wait_main(struct server *sv, int sigfd, int64_t until)
{
	struct pollfd fds[] = { { sv->port.efd, POLLIN, 0 }, { sigfd, POLLIN, 0 } };
	struct signalfd_siginfo si;
	int64_t left = until < 0 ? -1 : until - (int64_t)now_ns();

	/* its own messages are ready now */
	if ((until >= 0 && left < 0) || sv->port.own)
		left = 0;
	poll(fds, sigfd < 0 ? 1 : 2, left < 0 ? -1 : (int)((left + 999999) / 1000000));
	if (fds[0].revents)
		port_clear(&sv->port);
	port_run(&sv->port);
	return sigfd >= 0 && fds[1].revents & POLLIN &&
		read(sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si) ? (int)si.ssi_signo : 0;
}

static void tell(struct server *sv, unsigned int n, void (*fn)(struct msg *))
{
	unsigned int i;

	for (i = 0; i < n; i++)
		port_send(&sv->loops[i].port, &sv->loops[i].stop, fn, &sv->loops[i]);
}

void loops_take(struct server *sv)
{
	unsigned int i;

	sv->took = 0;
	for (i = 0; i < sv->cfg.loops; i++)
		port_send(&sv->loops[i].port, &sv->loops[i].publish, take, &sv->loops[i]);
	/* Loops only stop at times for a turn.  Control calls that arrive meanwhile wait. */
	while (sv->took < sv->cfg.loops)
		wait_main(sv, -1, -1);
}

void publish(struct server *sv, struct table *t)
{
	struct table *old = sv->table;
	unsigned int i;

	sv->table = t;
	for (i = 0; i < sv->cfg.loops; i++)
		sv->loops[i].next_table = t;
	loops_take(sv);
	if (old)
		table_put(old);
}

bool loop_ready(const struct loop *l, const char **why)
{
	bool closing = load_relaxed(&l->sv->closing);

	*why = closing ? "the server is stopping" : l->table->reason;
	return !closing && l->table->ready;
}

/* SIGHUP: the settings and the token, then the repository. */
static void reload(struct server *sv)
{
	char *old[TOKENS];
	unsigned int i;

	if (!config_reload(&sv->cfg, sv->argc, sv->argv, old)) {
		for (i = 0; i < sv->cfg.loops; i++)
			memcpy(sv->loops[i].next_token, sv->cfg.token, sizeof(old));
		loops_take(sv);
		for (i = 0; i < TOKENS; i++)
			free(old[i]);
	}
	sv->rescan = true;
}

static void stop(struct server *sv, int sigfd)
{
	int64_t until = (int64_t)(now_ns() + sv->cfg.grace_ns);
	bool forced = false;
	int sig;

	store_relaxed(&sv->closing, 1);
	loops_take(sv);			/* watchers of gRPC are told */
	notify("STOPPING=1");
	log_line("info", "stopping", NULL);
	while ((int64_t)now_ns() < until) {
		sig = wait_main(sv, sigfd, until);
		if (sig == SIGTERM || sig == SIGINT)
			break;
		repo_run(sv);
	}
	sv->stopping = true;
	repo_run(sv);
	tell(sv, sv->cfg.loops, begin_drain);
	until = (int64_t)(now_ns() + sv->cfg.drain_ns);
	while (sv->drained < sv->cfg.loops) {
		wait_main(sv, -1, forced ? -1 : until);
		repo_run(sv);
		if (!forced && (int64_t)now_ns() >= until && sv->drained < sv->cfg.loops) {
			unsigned int i;

			forced = true;
			log_line("warning", "drain", "error", "requests were canceled", NULL);
			for (i = 0; i < sv->cfg.loops; i++)
				port_send(&sv->loops[i].port, &sv->loops[i].force, force,
					  &sv->loops[i]);
		}
	}
	/* The loops still run, and receive the answers of these calls before they end. */
	while (repo_busy(sv)) {
		wait_main(sv, -1, -1);
		repo_run(sv);
	}
}

static int start_loops(struct server *sv, unsigned int *started)
{
	static struct table none = { .refs = 1, .loading = true, .reason = "models are loading" };
	unsigned int i, k;
	pthread_t t;
	int rc, n = inherited();

	for (i = 0; i < sv->cfg.loops; i++) {
		struct loop *l = &sv->loops[i];

		l->sv = sv;
		l->index = i;
		l->table = l->next_table = &none;
		memcpy(l->token, sv->cfg.token, sizeof(l->token));
		memcpy(l->next_token, sv->cfg.token, sizeof(l->token));
		for (k = 0; k < LISTENERS; k++)
			l->listener[k] = -1;
		l->scratch = malloc(SCRATCH);
		l->ep = epoll_create1(EPOLL_CLOEXEC);
		rc = port_init(&l->port);
		if (rc || !l->scratch || l->ep < 0)
			return failed("start", strerror(rc ? -rc : errno));
		rc = watch(l, l->port.efd, EPOLLIN, &l->port);
		if (!i && !rc) {
			for (k = 0; !rc && k < ENGINES; k++)
				rc = pawl_cq_create(sv->e[k], &l->cq[k]);
			if (!rc)
				rc = watch(l, pawl_cq_fd(sv->e[WORKERS], l->cq[WORKERS]),
					   EPOLLIN, &l->cq);
		}
		if (rc)
			return failed("start", strerror(-rc));
	}
	rc = open_listeners(sv, LISTEN_HTTP, n ? FIRST_FD : -1, &sv->cfg.port);
	/* with socket activation, only those that were passed */
	if (n == 1)
		sv->cfg.grpc_port = GRPC_NONE;
	if (!rc && sv->cfg.grpc_port != GRPC_NONE)
		rc = open_listeners(sv, LISTEN_GRPC, n > 1 ? FIRST_FD + 1 : -1,
				    &sv->cfg.grpc_port);
	if (!rc)
		rc = open_admin(sv);
	for (k = 0; !rc && k < sv->cfg.loops; k++) {
		rc = pthread_create(&t, NULL, loop_main, &sv->loops[k]);
		if (rc)
			rc = failed("a thread", strerror(rc));
		else
			*started += 1;
		sv->loops[k].thread = (unsigned long)t;
	}
	return rc;
}

static void free_loops(struct server *sv)
{
	const char *path = unix_path(sv->admin);
	struct request *r;
	unsigned int i, k;

	if (path)
		unlink(path);
	for (i = 0; i < sv->cfg.loops; i++) {
		struct loop *l = &sv->loops[i];

		if (!l->sv)
			continue;
		for (k = 0; k < LISTENERS; k++)
			if (l->listener[k] >= 0)
				close(l->listener[k]);
		port_fini(&l->port);
		if (l->ep >= 0)
			close(l->ep);
		free(l->scratch);
		buf_free(l);
		while ((r = l->free_requests)) {
			l->free_requests = r->next;
			free(r);
		}
		grpc_free(l);
	}
}

int serve_run(struct server *sv)
{
	struct pawl_config pc;
	struct rlimit as;
	unsigned int started = 0, i;
	char port[16], grpc[16] = "none", requests[24], answers[24];
	cpu_set_t cpus;
	int sigfd, rc, sig;

	sv->calls_tail = &sv->calls;
	/* large tensors have their own mappings, which a free gives back */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	serve_model_limit(sv->cfg.model_memory);
	this_port = &sv->port;
	http_parser_set_max_header_size(sv->cfg.max_header);
	sigfd = block_signals();
	if (sigfd < 0)
		return failed("signals", strerror(errno));
	rc = port_init(&sv->port);
	if (rc) {
		rc = failed("start", strerror(-rc));
		goto out_signals;
	}
	rc = log_start();
	if (rc) {
		rc = failed("a thread", strerror(-rc));
		goto out_port;
	}

	pawl_config_init(&pc);
	if (sv->cfg.workers)
		pc.workers = (int)sv->cfg.workers;
	sv->cfg.workers = (unsigned int)pc.workers;
	pc.name = "serve";
	pc.start_workers = true;
	pc.priority_workers = (int)text_threads(&sv->cfg);
	/* a worker that spins takes the CPU from a loop */
	if (!sched_getaffinity(0, sizeof(cpus), &cpus) &&
	    (unsigned int)CPU_COUNT(&cpus) < sv->cfg.loops + sv->cfg.workers)
		pc.spin_ns = 0;
	/* each arena of the heap reserves 64 MB of addresses */
	if (!getrlimit(RLIMIT_AS, &as) && as.rlim_cur < SMALL_AS)
		mallopt(M_ARENA_MAX, 2);
	/* a loop runs no layers; runs in flight are bounded, so the window is not reached */
	pc.window_policy = PAWL_WINDOW_FAIL;
	for (i = 0; i < ENGINES; i++) {
		if (i == LIGHT) {
			pc.workers = 0;
			pc.name = "light";
		}
		rc = pawl_engine_create(&pc, &sv->e[i]);
		if (rc) {
			rc = failed("engine", pawl_error_text());
			goto out_engines;
		}
	}

	rc = helper_start(&sv->loader, sv);
	if (rc)
		rc = failed("a thread", strerror(-rc));
	else
		rc = start_loops(sv, &started);
	if (!rc) {
		snprintf(port, sizeof(port), "%u", sv->cfg.port);
		if (sv->cfg.grpc_port != GRPC_NONE)
			snprintf(grpc, sizeof(grpc), "%u", sv->cfg.grpc_port);
		log_line("info", "listening", "host", sv->cfg.host, "port", port, "grpc_port",
			 grpc, "admin", sv->admin, NULL);
		sv->rescan = true;
		do {
			repo_run(sv);
			sig = wait_main(sv, sigfd, -1);
			if (sig == SIGHUP)
				reload(sv);
		} while (sig != SIGTERM && sig != SIGINT);
		stop(sv, sigfd);
	}
	tell(sv, started, leave);
	for (i = 0; i < started; i++)
		pthread_join((pthread_t)sv->loops[i].thread, NULL);
	helper_stop(&sv->loader);
	repo_free(sv);
	trace_free(sv);
	free_loops(sv);
	port_fini(&sv->loader.port);
out_engines:
	for (i = 0; i < ENGINES; i++)
		if (pawl_engine_destroy(sv->e[i]) && !rc)
			rc = failed("engine", pawl_error_text());
	snprintf(requests, sizeof(requests), "%" PRIu64, load_relaxed(&sv->requests));
	snprintf(answers, sizeof(answers), "%" PRIu64, load_relaxed(&sv->answers));
	if (!rc)
		log_line("info", "stopped", "requests", requests, "answers", answers, NULL);
	log_stop();
out_port:
	port_fini(&sv->port);
out_signals:
	close(sigfd);
	return rc;
}
