// SPDX-License-Identifier: Apache-2.0
/*
 * The server (tools/serve) with any bytes from a client: HTTP, JSON, tensors, queue, slot and
 * answer, on one thread with an engine that runs ops inside their push.
 *
 * The first byte says what the others are: 0 to 127: what the client sends, in pieces of that
 * size (0: at once); from 128: the body of an infer request, behind a correct header, whose
 * JSON is as long as the second and third byte say.
 *
 * Nothing is read or written beyond its memory, every request that was begun ends, and what
 * comes back begins as an answer of HTTP.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "../../tools/serve/serve.h"

const char fuzz_target[] = "serve";
const uint8_t *fuzz_data;
size_t fuzz_size;
static unsigned long answers, good;

static struct server *sv;
static struct entry entry;
static struct version version;
static union { struct table t; char room[256]; } table;

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
static void stop(void)
{
	pawl_engine_destroy(sv->e);
}

static void start(void)
{
	struct pawl_config pc;
	struct loop *l;
	char err[256], dir[] = "/tmp/pawl-fuzz-XXXXXX", path[64];
	FILE *f;

	sv = calloc(1, sizeof(*sv));
	l = &sv->loops[0];
	sv->cfg = (struct config){ .loops = 1,
				   .workers = 1,
				   .max_connections = 10,
				   .max_header = 4096,
				   .max_body = 20000,
				   .idle_ns = 1u << 30,
				   .read_ns = 1u << 30,
				   .write_ns = 1u << 30 };
	pawl_config_init(&pc);
	pc.kind = PAWL_NAIVE;
	if (pawl_engine_create(&pc, &sv->e) || port_init(&sv->port) || port_init(&l->port) ||
	    pawl_cq_create(sv->e, &l->cq))
		fuzz_broken("the engine: %s", pawl_error_text());
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
	entry.stats.batch = calloc(8, sizeof(*entry.stats.batch));
	version = (struct version){ .e = &entry, .refs = 1, .home = &sv->port };
	if (serve_model_load(dir, "m", 1, &version.m, err, sizeof(err)) ||
	    pawl_var_create(sv->e, &version.weights))
		fuzz_broken("the model: %s", err);
	unlink(path);
	rmdir(dir);
	table.t.n = 1;
	table.t.at[0].e = &entry;
	table.t.at[0].v = &version;
	l->table = &table.t;
	store_relaxed(&sv->ready, 1);
	atexit(stop);
}

/* Let the server work until it has nothing to do; read what it answers. */
static void work(struct conn *c, int fd, char *first, size_t *got)
{
	struct loop *l = &sv->loops[0];
	char buf[8192];
	ssize_t n;

	for (int i = 0; i < 3; i++) {
		loop_step(l);
		run_main();
		loop_step(l);
		while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
			for (ssize_t k = 0; k < n && *got < 13; k++)
				first[(*got)++] = buf[k];
		}
		if (l->nconns)
			conn_event(c, EPOLLIN | EPOLLOUT);
	}
}

static void client(const uint8_t *p, size_t n, size_t piece)
{
	struct loop *l = &sv->loops[0];
	char first[16] = "";
	size_t k, got = 0;
	struct conn *c;
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd))
		fuzz_broken("socketpair: %s", strerror(errno));
	l->now = now_ns();
	c = conn_open(l, fd[0], LISTEN_HTTP);
	if (!c)
		fuzz_broken("conn_open: %s", strerror(errno));
	for (; n; p += k, n -= k) {
		k = piece && piece < n ? piece : n;
		if (k > 60000)
			k = 60000;
		if (send(fd[1], p, k, MSG_NOSIGNAL) < 0)
			break;
		if (!l->nconns)
			break;
		conn_event(c, EPOLLIN);
		work(c, fd[1], first, &got);
	}
	close(fd[1]);
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
	if (got && memcmp(first, "HTTP/1.1 ", got < 9 ? got : 9))
		fuzz_broken("an answer begins with \"%s\"", first);
	answers += got > 0;
	good += got >= 12 && !memcmp(first + 9, "200", 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t body, head;
	char *text;

	fuzz_data = data;
	fuzz_size = size;
	if (!sv)
		start();
	if (size < 3)
		return 0;
	if (data[0] < 128) {
		client(data + 1, size - 1, data[0]);
		return 0;
	}
	body = size - 3;
	text = malloc(body + 256);
	head = (size_t)sprintf(
		text, "POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: %zu\r\n", body);
	if (data[1] | data[2])
		head += (size_t)sprintf(text + head, "Inference-Header-Content-Length: %d\r\n",
					data[1] | data[2] << 8);
	head += (size_t)sprintf(text + head, "\r\n");
	memcpy(text + head, data + 3, body);
	client((uint8_t *)text, head + body, 0);
	free(text);
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "answers=%lu good=%lu", answers, good);
}
