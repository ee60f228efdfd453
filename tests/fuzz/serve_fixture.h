/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server (tools/serve) on one thread, with an engine that runs ops inside their push and
 * one model, "m": what fuzz_serve and fuzz_grpc send bytes to.
 */
#ifndef TESTS_FUZZ_SERVE_FIXTURE_H
#define TESTS_FUZZ_SERVE_FIXTURE_H

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "../../tools/serve/serve.h"

static struct server *sv;
static struct entry entry;
static struct version version;
static union { struct table t; char room[sizeof(struct table) + 64]; } table;

/* Messages to the main thread, of which there is none. */
static void run_main(void)
{
	struct msg *m = xchg_acquire(&sv->port.head, NULL), *next;

	for (; m; m = next) {
		next = m->next;
		m->fn(m);
	}
	while (sv->calls) {
		struct control *ct = sv->calls;

		sv->calls = ct->next;
		if (!sv->calls)
			sv->calls_tail = &sv->calls;
		/* as a repository without models */
		ct->http = 400;
		ct->text = NULL;
		port_post(&ct->loop->port, ct->done);
	}
}

/* What the engine keeps for a thread is freed with it. */
static void serve_stop(void)
{
	unsigned int i;

	for (i = 0; i < ENGINES; i++)
		pawl_engine_destroy(sv->e[i]);
}

static void serve_start(void)
{
	struct pawl_config pc;
	pawl_var_t weights[ENGINES];
	struct serve_how how = { 0 };
	struct loop *l;
	unsigned int i;
	char err[256], dir[] = "/tmp/pawl-fuzz-XXXXXX", path[64];
	FILE *f;

	sv = calloc(1, sizeof(*sv));
	l = &sv->loops[0];
	sv->control = sv->metrics = true;
	sv->cfg = (struct config){ .loops = 1,
				   .workers = 1,
				   .max_connections = 10,
				   .max_header = 4096,
				   .max_body = 20000,
				   .idle_ns = 1u << 30,
				   .read_ns = 1u << 30,
				   .write_ns = 1u << 30 };
	pawl_config_init(&pc);
	for (i = 0; i < ENGINES; i++) {
		/* no threads */
		pc.kind = i == WORKERS ? PAWL_NAIVE : PAWL_PER_DEVICE;
		pc.workers = 0;
		if (pawl_engine_create(&pc, &sv->e[i]) || pawl_cq_create(sv->e[i], &l->cq[i]) ||
		    pawl_var_create(sv->e[i], &weights[i]))
			fuzz_broken("an engine: %s", pawl_error_text());
	}
	if (port_init(&sv->port) || port_init(&l->port))
		fuzz_broken("a port: %s", strerror(errno));
	sv->calls_tail = &sv->calls;
	l->sv = sv;
	l->ep = epoll_create1(EPOLL_CLOEXEC);
	l->listener[LISTEN_HTTP] = l->listener[LISTEN_GRPC] = -1;
	l->scratch = malloc(65536);
	this_port = &l->port;
	http_parser_set_max_header_size(sv->cfg.max_header);
	if (!mkdtemp(dir))
		fuzz_broken("%s: %s", dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/fake", dir);
	f = fopen(path, "w");
	if (!f)
		fuzz_broken("%s: %s", path, strerror(errno));
	fputs("inputs 2\nadd 1\ndims -1 -1\nlargest 99\n", f);
	fclose(f);
	strcpy(entry.name, "m");
	entry.conf = (struct model_conf){ .max_batch = 4,
					  .queue_requests = 4,
					  .queue_bytes = 1 << 20,
					  .weight = 1,
					  .instances = 1 };
	entry.sv = sv;
	version = (struct version){ .e = &entry, .refs = 1, .home = &sv->port };
	version.stats.batch = calloc(8, sizeof(*version.stats.batch));
	memcpy(version.weights, weights, sizeof(weights));
	if (serve_model_load(dir, "m", 1, &how, &version.m, err, sizeof(err)))
		fuzz_broken("the model: %s", err);
	unlink(path);
	rmdir(dir);
	table.t.n = 1;
	table.t.at[0].e = &entry;
	table.t.at[0].v = &version;
	l->table = &table.t;
	table.t.ready = true;
	atexit(serve_stop);
}

/* A connection of a client; *fd is the client's end. */
static struct conn *serve_connect(unsigned int kind, int *fd)
{
	struct loop *l = &sv->loops[0];
	struct conn *c;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
		fuzz_broken("socketpair: %s", strerror(errno));
	l->now = now_ns();
	c = conn_open(l, pair[0], kind);
	if (!c)
		fuzz_broken("conn_open: %s", strerror(errno));
	*fd = pair[1];
	return c;
}

/* Let the server work until it has nothing to do; read what it answers. */
static void serve_work(struct conn *c, int fd, char *first, size_t size, size_t *got)
{
	struct loop *l = &sv->loops[0];
	char buf[8192];
	ssize_t n;

	for (int i = 0; i < 3; i++) {
		loop_step(l);
		run_main();
		loop_step(l);
		while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
			for (ssize_t k = 0; k < n && *got < size; k++)
				first[(*got)++] = buf[k];
		}
		if (l->nconns)
			conn_event(c, EPOLLIN | EPOLLOUT);
	}
}

/* Send bytes, at most piece at a time (0: at once). */
static void serve_send(struct conn *c, int fd, const uint8_t *p, size_t n, size_t piece,
		       char *first, size_t size, size_t *got)
{
	struct loop *l = &sv->loops[0];
	size_t k;

	for (; n; p += k, n -= k) {
		k = piece && piece < n ? piece : n;
		if (k > 60000)
			k = 60000;
		if (send(fd, p, k, MSG_NOSIGNAL) < 0)
			break;
		if (!l->nconns)
			break;
		conn_event(c, EPOLLIN);
		serve_work(c, fd, first, size, got);
	}
}

/* The client closes; nothing of it is left. */
static void serve_close(struct conn *c, int fd)
{
	struct loop *l = &sv->loops[0];

	close(fd);
	if (l->nconns)
		conn_event(c, EPOLLIN | EPOLLRDHUP);
	do {
		loop_step(l);
		run_main();
		loop_step(l);
	} while (l->again || sv->inflight);
	if (l->nconns)
		fuzz_broken("the connection is open after its client has closed it");
	if (load_relaxed(&l->busy) || entry.queued || sv->inflight)
		fuzz_broken("a request has no end");
	if (load_relaxed(&version.refs) != 1)
		fuzz_broken("%u references to the model", load_relaxed(&version.refs));
	if (load_relaxed(&sv->held))
		fuzz_broken("%llu bytes are held", (unsigned long long)load_relaxed(&sv->held));
}

#endif
