// SPDX-License-Identifier: Apache-2.0
/*
 * Fault points of pawl serve: memory, threads, files, and the calls of sockets and epoll fail
 * in turn, in the whole server with the models of tests/serve/http/fake.c; see fault.c.
 *
 * The first thread is the client, whose own calls do not fail.  Each of its requests has an
 * answer, or its connection ends, in a bounded time.  A client waits a moment while all calls
 * fail; then the faults end, and the server has to answer again.  At the end the counts of
 * requests add up, the server ends with status 0, and no memory and no descriptor is left.
 */
#include "fault.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <http_parser.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zlib.h>
#include "../../tools/pawl/cmd.h"

const char fault_program[] = "fault_serve";

#define FD	3			/* of socket activation */
#define SERVED	(ALL | 1u << NET)
#define SOME_MS	20			/* how long a client waits while all calls fail */

/* --- the calls --- */

#define REAL(type, name, ...) \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

#define FAILS(class, error) \
	do { \
		if (fails(class)) { \
			errno = (error); \
			return -1; \
		} \
	} while (0)

REAL(int, accept4, int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	FAILS(NET, EMFILE);
	return __real_accept4(fd, a, n, flags);
}

REAL(ssize_t, recv, int fd, void *p, size_t n, int flags)
{
	FAILS(NET, ECONNRESET);
	return __real_recv(fd, p, n, flags);
}

REAL(ssize_t, send, int fd, const void *p, size_t n, int flags)
{
	FAILS(NET, EPIPE);
	return __real_send(fd, p, n, flags);
}

REAL(int, epoll_ctl, int ep, int what, int fd, struct epoll_event *ev)
{
	FAILS(NET, ENOMEM);
	return __real_epoll_ctl(ep, what, fd, ev);
}

REAL(int, epoll_create1, int flags)
{
	FAILS(NET, EMFILE);
	return __real_epoll_create1(flags);
}

REAL(int, eventfd, unsigned int n, int flags)
{
	FAILS(NET, EMFILE);
	return __real_eventfd(n, flags);
}

REAL(int, signalfd, int fd, const sigset_t *set, int flags)
{
	FAILS(NET, EMFILE);
	return __real_signalfd(fd, set, flags);
}

REAL(ssize_t, read, int fd, void *p, size_t n)
{
	FAILS(FILES, EINTR);
	return __real_read(fd, p, n);
}

REAL(DIR *, opendir, const char *name)
{
	if (fails(FILES)) {
		errno = EMFILE;
		return NULL;
	}
	return __real_opendir(name);
}

REAL(int, socket, int family, int type, int protocol)
{
	FAILS(NET, EMFILE);
	return __real_socket(family, type, protocol);
}

REAL(int, bind, int fd, const struct sockaddr *a, socklen_t n)
{
	FAILS(NET, EADDRINUSE);
	return __real_bind(fd, a, n);
}

REAL(int, listen, int fd, int n)
{
	FAILS(NET, EADDRINUSE);
	return __real_listen(fd, n);
}

REAL(int, getsockname, int fd, struct sockaddr *a, socklen_t *n)
{
	FAILS(NET, ENOBUFS);
	return __real_getsockname(fd, a, n);
}

REAL(int, setsockopt, int fd, int level, int what, const void *p, socklen_t n)
{
	FAILS(NET, ENOMEM);
	return __real_setsockopt(fd, level, what, p, n);
}

REAL(int, dup, int fd)
{
	FAILS(NET, EMFILE);
	return __real_dup(fd);
}

int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
	va_list ap;
	int arg;

	FAILS(NET, EINVAL);
	va_start(ap, what);
	arg = va_arg(ap, int);
	va_end(ap);
	return __real_fcntl(fd, what, arg);
}

REAL(char *, strdup, const char *text)
{
	return fails(MEMORY) ? NULL : counted(__real_strdup(text));
}

int __wrap_asprintf(char **out_text, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out_text, const char *fmt, ...)
{
	va_list ap;
	int n;

	FAILS(MEMORY, ENOMEM);
	va_start(ap, fmt);
	n = vasprintf(out_text, fmt, ap);
	va_end(ap);
	if (n >= 0)
		counted(*out_text);
	return n;
}

REAL(char *, json_dumps, const json_t *j, size_t flags)
{
	return fails(MEMORY) ? NULL : counted(__real_json_dumps(j, flags));
}

/* The line is an allocation that the caller frees.  A header may make getline() this call. */
REAL(ssize_t, __getdelim, char **line, size_t *room, int end, FILE *f)
{
	char *before = *line;
	ssize_t n;

	FAILS(MEMORY, ENOMEM);
	n = __real___getdelim(line, room, end, f);
	if (!before)
		counted(*line);
	return n;
}

ssize_t __wrap_getline(char **line, size_t *room, FILE *f);
ssize_t __wrap_getline(char **line, size_t *room, FILE *f)
{
	return __wrap___getdelim(line, room, '\n', f);
}

/* The text of the stream is an allocation that the server frees. */
REAL(FILE *, open_memstream, char **text, size_t *n)
{
	return fails(MEMORY) ? NULL : counted(__real_open_memstream(text, n));
}

REAL(int, memfd_create, const char *name, unsigned int flags)
{
	FAILS(FILES, EMFILE);
	return __real_memfd_create(name, flags);
}

/* --- the server --- */

static char folder[64];
static unsigned int port;
static int fds_before, status;
static pthread_t server;

static int descriptors(void)
{
	DIR *dir = __real_opendir("/proc/self/fd");
	int n = 0;

	CHECK(dir, "%s: /proc/self/fd: %s", where, strerror(errno));
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void model(const char *name, int version, const char *text)
{
	char file[256];
	int fd;

	snprintf(file, sizeof(file), "%s/%s", folder, name);
	mkdir(file, 0700);
	snprintf(file, sizeof(file), "%s/%s/%d", folder, name, version);
	mkdir(file, 0700);
	snprintf(file, sizeof(file), "%s/%s/%d/fake", folder, name, version);
	fd = open_for_sure(file, O_CREAT | O_WRONLY);
	CHECK(fd >= 0 && dprintf(fd, "%s", text) > 0, "%s: %s: %s", where, file,
	      strerror(errno));
	close(fd);
}

static void forget_models(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	CHECK(!system(command), "%s: %s", where, command);
}

static void *serve(void *arg)
{
	static char text[][16] = { "serve", "--repository", "--workers=2", "--io-threads",
				   "--config", "--port=0" };
	char *argv[] = { text[0], text[1], folder, text[2], text[3], arg, text[4], path,
			 text[5], NULL };

	status = cmd_serve(9, argv);
	return NULL;
}

/* The repository, a listener that the server inherits, and its thread. */
static void start(unsigned int loops, bool listener)
{
	static char number[2];
	struct sockaddr_in sin = { .sin_family = AF_INET };
	socklen_t n = sizeof(sin);
	char text[16];
	sigset_t set;
	int fd, i;

	spared = true;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	strcpy(folder, "/tmp/pawl-fault-models-XXXXXX");
	CHECK(mkdtemp(folder), "%s: %s", folder, strerror(errno));
	model("m", 1, "sleep_us 200\n");
	model("any", 1, "dims -1 -1\nlargest 999\n");
	fd = open_for_sure(path, O_WRONLY);
	CHECK(dprintf(fd, "[server]\ngrace = 0\n[model]\npreferred_batches = 2\n") > 0,
	      "%s: %s", path, strerror(errno));
	close(fd);
	/* a log of each fault is too much */
	i = open_for_sure("/dev/null", O_WRONLY);
	dup2(i, STDERR_FILENO);
	close(i);
	/* the numbers that the server uses */
	for (i = FD; i < 30; i++)
		close(i);
	if (listener) {
		fd = __real_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		CHECK(fd == FD && !__real_bind(fd, (struct sockaddr *)&sin, n) &&
		      !__real_listen(fd, 100) &&
		      !__real_getsockname(fd, (struct sockaddr *)&sin, &n),
		      "%s: listener: %s", where, strerror(errno));
		port = ntohs(sin.sin_port);
		snprintf(text, sizeof(text), "%d", getpid());
		setenv("LISTEN_PID", text, 1);
		setenv("LISTEN_FDS", "1", 1);
	}
	fds_before = descriptors() - listener;
	if (!listener)
		arm(SERVED);
	number[0] = (char)('0' + loops);
	CHECK(!thread_for_sure(&server, serve, number), "%s: no thread", where);
}

static void stopped(void)
{
	disarm();
	if (status)
		out->refused++;
	CHECK(descriptors() == fds_before, "%s: %d descriptors are left of %d", where,
	      descriptors(), fds_before);
	forget_models();
}

/* --- the client --- */

static int dial(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = __real_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&sin, sizeof(sin)), "%s: connect: %s",
	      where, strerror(errno));
	return fd;
}

struct reply {
	char text[65536];		/* of the body */
	size_t n;
	bool complete;
};

static int on_body(http_parser *p, const char *at, size_t n)
{
	struct reply *r = p->data;

	if (n > sizeof(r->text) - 1 - r->n)
		n = sizeof(r->text) - 1 - r->n;
	memcpy(r->text + r->n, at, n);
	r->n += n;
	r->text[r->n] = 0;
	return 0;
}

static int on_complete(http_parser *p)
{
	((struct reply *)p->data)->complete = true;
	http_parser_pause(p, 1);	/* the next answer may be in the same buffer */
	return 0;
}

/* The status of the answer; 0: the connection has ended before all of it. */
static int hear(int fd, struct reply *r)
{
	http_parser_settings set = { .on_body = on_body, .on_message_complete = on_complete };
	struct pollfd p = { fd, POLLIN, 0 };
	u32 ms = 0;
	int rc;
	http_parser hp;
	char buf[4096];
	size_t used;
	ssize_t n;

	r->n = 0;
	r->complete = false;
	http_parser_init(&hp, HTTP_RESPONSE);
	hp.data = r;
	while (!r->complete) {
		rc = poll(&p, 1, 10);
		if (rc <= 0) {
			ms += 10;
			if (for_good && ms >= SOME_MS)
				disarm();
			CHECK(ms < patience_ms(20000), "%s: no answer, and no end", where);
			continue;
		}
		n = __real_recv(fd, buf, sizeof(buf), MSG_PEEK);
		if (n <= 0)
			return 0;
		used = http_parser_execute(&hp, &set, buf, (size_t)n);
		CHECK(used == (size_t)n || r->complete, "%s: %s in an answer", where,
		      http_errno_description(HTTP_PARSER_ERRNO(&hp)));
		__real_recv(fd, buf, used, 0);
	}
	return (int)hp.status_code;
}

static void say(int fd, const char *text, size_t n)
{
	ssize_t k;

	/* the server may have closed it */
	while (n && (k = __real_send(fd, text, n, MSG_NOSIGNAL)) > 0) {
		text += k;
		n -= (size_t)k;
	}
}

static char request[200000];

/* A request for a model with these columns; returns its length. */
static size_t infer(const char *name, unsigned int columns, unsigned int value,
		    const char *more)
{
	static char text[150000];
	size_t n;
	unsigned int i;

	n = (size_t)sprintf(text, "{%s\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\","
			    "\"shape\":[1,%u],\"data\":[", more, columns);
	for (i = 0; i < columns; i++)
		n += (size_t)sprintf(text + n, "%s%u", i ? "," : "", value);
	n += (size_t)sprintf(text + n, "]}]}");
	return (size_t)sprintf(request, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\n"
			       "Content-Length: %zu\r\n\r\n%s", name, n, text);
}

/* The same request with a compressed body, for a compressed answer. */
static size_t compressed(size_t n)
{
	static unsigned char packed[150000];
	char *body = strstr(request, "\r\n\r\n") + 4;
	uLongf size = sizeof(packed);
	int head;

	CHECK(compress(packed, &size, (unsigned char *)body, n - (size_t)(body - request)) == Z_OK,
	      "%s: compress", where);
	head = sprintf(request, "POST /v2/models/any/infer HTTP/1.1\r\nHost: x\r\n"
		       "Content-Encoding: deflate\r\nAccept-Encoding: gzip\r\n"
		       "Content-Length: %lu\r\n\r\n", size);
	memcpy(request + head, packed, size);
	return (size_t)head + size;
}

static size_t simple(const char *method, const char *url)
{
	return (size_t)sprintf(request, "%s %s HTTP/1.1\r\nHost: x\r\n"
			       "Content-Length: 0\r\n\r\n", method, url);
}

static struct reply reply;

static int ask(size_t n)
{
	int fd = dial(), rc;

	say(fd, request, n);
	rc = hear(fd, &reply);
	close(fd);
	return rc;
}

/* With a fault anything may fail once. */
static int answered(const char *what, int rc, int want)
{
	CHECK(rc == want || out->fired, "%s: %s: status %d without a fault", where, what, rc);
	if (rc != want)
		out->refused++;
	return rc;
}

static double metric(const char *name)
{
	const char *p = strstr(reply.text, name);

	CHECK(p, "%s: no %s", where, name);
	return strtod(strchr(p, ' '), NULL);
}

/* The faults have ended: the server is as before, its counts add up, and it stops. */
static void works(void)
{
	char name[64];
	double in, done;
	u32 i, ms;

	disarm();
	for (i = 0; i < 3; i++)
		CHECK(ask(infer("m", 4, 1, "")) == 200, "%s: afterwards: %.200s", where, reply.text);
	CHECK(ask(infer("any", 9, 1, "")) == 200, "%s: afterwards: %.200s", where, reply.text);
	for (ms = 0;; ms++) {
		CHECK(ask(simple("GET", "/metrics")) == 200, "%s: no metrics", where);
		for (in = done = i = 0; i < 2; i++) {
			static const char *const of[] = { "m", "any" };

			snprintf(name, sizeof(name), "pawl_serve_submitted_total{model=\"%s\"",
				 of[i]);
			in += metric(name);
			snprintf(name, sizeof(name), "nv_inference_request_success{model=\"%s\"",
				 of[i]);
			done += metric(name);
			snprintf(name, sizeof(name), "nv_inference_request_failure{model=\"%s\"",
				 of[i]);
			done += metric(name);
			snprintf(name, sizeof(name), "pawl_serve_canceled_total{model=\"%s\"",
				 of[i]);
			done += metric(name);
		}
		if (in == done)
			break;
		CHECK(ms < patience_ms(20000), "%s: %g requests, %g have ended", where, in, done);
		usleep(1000);
	}
	kill(getpid(), SIGTERM);
	pthread_join(server, NULL);
	CHECK(!status, "%s: exit status %d", where, status);
	stopped();
}

static void begin(unsigned int loops)
{
	u32 ms;

	start(loops, true);
	for (ms = 0; ask(simple("GET", "/v2/health/ready")) != 200; ms++) {
		CHECK(ms < patience_ms(20000), "%s: it is not ready: %.200s", where, reply.text);
		usleep(1000);
	}
	arm(SERVED);
}

/* --- scenarios --- */

/* SIGTERM is pending: it starts, loads, and stops. */
static void sc_start(void)
{
	u32 ms;

	start(2, false);
	kill(getpid(), SIGTERM);
	for (ms = 0; pthread_tryjoin_np(server, NULL); ms++) {
		if (for_good && ms >= SOME_MS)
			disarm();
		CHECK(ms < patience_ms(20000), "%s: it does not stop", where);
		usleep(1000);
	}
	CHECK(!status || out->fired, "%s: exit status %d without a fault", where, status);
	stopped();
}

static void sc_infer(void)
{
	static const char json[] =
		"{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1,4],"
		"\"parameters\":{\"binary_data_size\":16}}]}";
	size_t n;
	int fd;

	begin(1);
	answered("a request", ask(infer("m", 4, 1, "\"id\":\"a\",")), 200);
	answered("large", ask(infer("any", 20000, 7, "")), 200);
	n = (size_t)sprintf(request, "POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"
			    "Transfer-Encoding: chunked\r\n"
			    "Inference-Header-Content-Length: %zu\r\n\r\n"
			    "%zx\r\n%s\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
			    sizeof(json) - 1, sizeof(json) - 1, json);
	answered("chunked", ask(n), 200);
	answered("compressed", ask(compressed(infer("any", 20000, 7, ""))), 200);
	answered("bad data", ask(infer("any", 4, 1000, "")), 400);
	answered("not found", ask(infer("none", 4, 1, "")), 404);
	fd = dial();
	say(fd, request, infer("m", 4, 1, ""));
	say(fd, request, infer("m", 4, 2, ""));
	if (answered("the first of two", hear(fd, &reply), 200) == 200)
		answered("the second", hear(fd, &reply), 200);
	close(fd);
	works();
}

/* Clients at once, with batches and shapes that have no slot; one of them has bad data. */
static void sc_many(void)
{
	int fd[12];
	unsigned int i;

	begin(2);
	for (i = 0; i < 12; i++) {
		fd[i] = dial();
		say(fd[i], request, infer(i % 2 ? "m" : "any", i % 2 ? 4 : 4 + i % 3,
					  i == 6 ? 1000 : i, ""));
	}
	for (i = 0; i < 12; i++) {
		answered("one of many", hear(fd[i], &reply), i == 6 ? 400 : 200);
		close(fd[i]);
	}
	works();
}

static void sc_cancel(void)
{
	unsigned int i;
	int fd;

	begin(1);
	for (i = 0; i < 4; i++) {
		fd = dial();
		say(fd, request, infer(i % 2 ? "any" : "m", 4, i, ""));
		close(fd);
		ask(infer("m", 4, i, "\"parameters\":{\"timeout\":1},"));
	}
	works();
}

static void sc_control(void)
{
	begin(2);
	model("m", 2, "add 2\n");
	answered("trace", ask(simple("POST", "/v2/trace/start")), 200);
	answered("load", ask(simple("POST", "/v2/repository/models/m/load")), 200);
	answered("a request", ask(infer("m", 4, 1, "")), 200);
	answered("index", ask(simple("POST", "/v2/repository/index")), 200);
	answered("unload", ask(simple("POST", "/v2/repository/models/any/unload")), 200);
	answered("load again", ask(simple("POST", "/v2/repository/models/any/load")), 200);
	answered("load none", ask(simple("POST", "/v2/repository/models/none/load")), 500);
	answered("stats", ask(simple("GET", "/v2/models/stats")), 200);
	answered("config", ask(simple("GET", "/v2/models/m/config")), 200);
	answered("metrics", ask(simple("GET", "/metrics")), 200);
	answered("the trace", ask(simple("POST", "/v2/trace/stop")), 200);
	model("m", 3, "add 3\n");
	kill(getpid(), SIGHUP);
	answered("a request", ask(infer("m", 4, 1, "")), 200);
	disarm();
	/* what a fault left unloaded, or is loaded by the signal */
	CHECK(ask(simple("POST", "/v2/repository/models/any/load")) == 200 &&
	      ask(simple("POST", "/v2/repository/models/m/load")) == 200,
	      "%s: load afterwards: %.200s", where, reply.text);
	works();
}

const struct scenario scenarios[] = {
	{ "start", sc_start, .most = 0 },
	{ "infer", sc_infer, .most = 0 },
	{ "many", sc_many, .most = 0 },
	{ "cancel", sc_cancel, .most = 0 },
	{ "control", sc_control, .most = 0 },
	{ 0 },
};
