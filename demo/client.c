// SPDX-License-Identifier: Apache-2.0
/*
 * The client of pawl demo: connections with one request each, and the comparison of answers.
 *
 * A request has 1 to 8 images, as binary data behind the JSON.  Its text is made beforehand, so
 * the client needs little CPU beside the server.  An answer names its version, and each of its
 * rows is compared with what a serial loop computed for that version.  The answer is mixed if a
 * row is that of the other version, and wrong if a row is that of neither.
 *
 * With a rate, requests arrive at random times, whether or not a connection is free.  Latency
 * counts from the arrival, so it contains the wait for slow answers to earlier requests.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <http_parser.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "demo.h"

#define MOST_ROWS	8u
#define MAX_ANSWER	4096u
#define EVENTS		64

struct wanted {
	char *text;			/* the request */
	size_t n;
	uint32_t image, rows;
};

struct link {
	struct client *cl;
	int fd;				/* -1: closed */
	const struct wanted *w;		/* in flight; NULL: idle */
	size_t sent;			/* bytes of it */
	uint64_t from;			/* the time from which its latency counts */
	int version;			/* the oldest version that may answer it */
	http_parser parser;
	bool complete, length_next, overflow;
	size_t json;			/* Inference-Header-Content-Length */
	size_t n;
	char body[MAX_ANSWER];
};

struct client {
	const struct work *w;
	struct child *ch;
	struct tally *t;
	const struct load *load;
	struct outcome *o;
	struct wanted *wanted;
	uint32_t nwanted;
	struct wanted reload;
	struct link *link;		/* [connections], then that for loads */
	unsigned int nopen, nbusy;	/* without that for loads */
	uint64_t next;			/* request */
	uint64_t due, end, swap_due;
	int served;			/* the version of the last load */
	bool ending, terminated;
	int ep, timer, signals;
	unsigned short seed[3];
};

/* ---- requests --------------------------------------------------------------- */

static int make_request(struct client *cl, struct wanted *q)
{
	size_t bytes = q->rows * (size_t)cl->w->images->size * sizeof(float);
	char json[256];
	int head, n = snprintf(json, sizeof(json),
			       "{\"inputs\":[{\"name\":\"image\",\"datatype\":\"FP32\","
			       "\"shape\":[%" PRIu32 ",%" PRIu32 "],\"parameters\":"
			       "{\"binary_data_size\":%zu}}],"
			       "\"parameters\":{\"binary_data_output\":true}}",
			       q->rows, cl->w->images->size, bytes);

	q->text = malloc(bytes + 1024);
	if (!q->text)
		return -ENOMEM;
	head = snprintf(q->text, 1024,
			"POST /v2/models/%s/infer HTTP/1.1\r\nHost: pawl\r\n"
			"Inference-Header-Content-Length: %d\r\nContent-Length: %zu\r\n\r\n%s",
			MODEL_NAME, n, (size_t)n + bytes, json);
	memcpy(q->text + head, cl->w->input + q->image * cl->w->in_size, bytes);
	q->n = (size_t)head + bytes;
	return 0;
}

static int make_requests(struct client *cl)
{
	uint32_t count = cl->w->images->count, image = 0, rows = 1;
	int rc = 0;

	cl->wanted = calloc(count, sizeof(*cl->wanted));
	if (!cl->wanted)
		return -ENOMEM;
	for (; image < count && !rc; rows = rows % MOST_ROWS + 1) {
		struct wanted *q = &cl->wanted[cl->nwanted++];

		q->image = image;
		q->rows = rows < count - image ? rows : count - image;
		image += q->rows;
		rc = make_request(cl, q);
	}
	if (!rc && asprintf(&cl->reload.text,
			    "POST /v2/repository/models/%s/load HTTP/1.1\r\nHost: pawl\r\n"
			    "Content-Length: 0\r\n\r\n", MODEL_NAME) < 0) {
		cl->reload.text = NULL;
		rc = -ENOMEM;
	}
	if (!rc)
		cl->reload.n = strlen(cl->reload.text);
	return rc;
}

/* ---- answers ---------------------------------------------------------------- */

static void note(struct client *cl, uint64_t *count, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void note(struct client *cl, uint64_t *count, const char *fmt, ...)
{
	va_list ap;

	++*count;
	if (*cl->t->first)
		return;
	va_start(ap, fmt);
	vsnprintf(cl->t->first, sizeof(cl->t->first), fmt, ap);
	va_end(ap);
}

static bool row_is(const float *got, const float *want, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (!(fabsf(got[i] - want[i]) <= 1e-4f))
			return false;
	return true;
}

/* Compare all rows, and note which images are right. */
static void judge(struct client *cl, const struct link *k, int64_t version, const float *out)
{
	const struct work *w = cl->w;
	uint32_t classes = w->images->classes, i, j, best, image = k->w->image;
	int model = version_model(version);
	uint64_t *bad = NULL;

	if (version < k->version || version > cl->ch->version) {
		note(cl, &cl->t->wrong,
		     "an answer is of version %" PRId64 ", but %d to %d were served", version,
		     k->version, cl->ch->version);
		return;
	}
	for (i = 0; i < k->w->rows; i++, image++, out += classes) {
		if (!row_is(out, w->expected[model] + image * w->out_size, classes))
			bad = row_is(out, w->expected[!model] + image * w->out_size, classes) ?
				      &cl->t->mixed : bad ? bad : &cl->t->wrong;
		for (best = 0, j = 1; j < classes; j++)
			best = out[j] > out[best] ? j : best;
		w->seen[model][image] = SEEN | (best == w->images->label[image] ? RIGHT : 0);
	}
	if (bad)
		note(cl, bad, "the answer for image %" PRIu32 " is not that of version %"
		     PRId64 ", which it names", k->w->image, version);
}

static void take_answer(struct client *cl, struct link *k, uint64_t now)
{
	size_t bytes = k->w->rows * (size_t)cl->w->images->classes * sizeof(float);
	const char *version, *error;
	float out[MOST_ROWS * 256];
	json_t *o;

	cl->t->answered++;
	if (k->w == &cl->reload) {
		if (k->parser.status_code == 200) {
			cl->served = cl->ch->version;
			cl->t->swaps++;
			hist_add(&cl->o->swap, now - k->from);
		} else {
			note(cl, &cl->t->failed, "a load: status %u: %.*s",
			     k->parser.status_code, (int)(k->n > 150 ? 150 : k->n), k->body);
		}
		return;
	}
	cl->t->answers++;
	cl->o->answers++;
	hist_add(&cl->o->latency, now - k->from);
	o = json_loadb(k->body, k->json && k->json < k->n ? k->json : k->n, 0, NULL);
	version = json_string_value(json_object_get(o, "model_version"));
	error = json_string_value(json_object_get(o, "error"));
	if (k->parser.status_code != 200 || k->overflow) {
		note(cl, &cl->t->failed, "a request: status %u: %s", k->parser.status_code,
		     error ? error : "?");
	} else if (!version || !k->json || k->n - k->json != bytes) {
		note(cl, &cl->t->wrong, "an answer has no version, or another size");
	} else {
		cl->t->images += k->w->rows;
		cl->o->images += k->w->rows;
		memcpy(out, k->body + k->json, bytes);
		judge(cl, k, strtoll(version, NULL, 10), out);
	}
	json_decref(o);
}

static int on_field(http_parser *p, const char *at, size_t n)
{
	struct link *k = p->data;

	k->length_next = n == 31 && !strncasecmp(at, "Inference-Header-Content-Length", 31);
	return 0;
}

static int on_value(http_parser *p, const char *at, size_t n)
{
	struct link *k = p->data;
	size_t i;

	for (i = 0; k->length_next && i < n && at[i] >= '0' && at[i] <= '9'; i++)
		k->json = k->json * 10 + (size_t)(at[i] - '0');
	return 0;
}

static int on_body(http_parser *p, const char *at, size_t n)
{
	struct link *k = p->data;

	if (n > sizeof(k->body) - k->n) {
		k->overflow = true;
		return 0;
	}
	memcpy(k->body + k->n, at, n);
	k->n += n;
	return 0;
}

static int on_complete(http_parser *p)
{
	struct link *k = p->data;

	k->complete = true;
	return 0;
}

static const http_parser_settings callbacks = {
	.on_header_field = on_field,
	.on_header_value = on_value,
	.on_body = on_body,
	.on_message_complete = on_complete,
};

/* ---- connections ------------------------------------------------------------- */

static struct link *control(struct client *cl)
{
	return &cl->link[cl->load->connections];
}

static int link_open(struct client *cl, struct link *k)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)cl->ch->port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = k };
	int on = 1;

	k->cl = cl;
	k->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (k->fd < 0 || connect(k->fd, (struct sockaddr *)&to, sizeof(to)) ||
	    fcntl(k->fd, F_SETFL, O_NONBLOCK) ||
	    setsockopt(k->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    epoll_ctl(cl->ep, EPOLL_CTL_ADD, k->fd, &ev))
		return failed("a connection to the server", strerror(errno));
	http_parser_init(&k->parser, HTTP_RESPONSE);
	k->parser.data = k;
	cl->nopen += k != control(cl);
	return 0;
}

static void link_close(struct client *cl, struct link *k)
{
	if (k->fd < 0)
		return;
	if (k->w && k->w != &cl->reload)
		cl->nbusy--;
	cl->nopen -= k != control(cl);
	close(k->fd);
	k->fd = -1;
	k->w = NULL;
}

static void link_write(struct client *cl, struct link *k)
{
	ssize_t n;

	while (k->w && k->sent < k->w->n) {
		n = send(k->fd, k->w->text + k->sent, k->w->n - k->sent, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			note(cl, &cl->t->failed, "a request: %s", strerror(errno));
			link_close(cl, k);
			return;
		}
		k->sent += (size_t)n;
	}
}

static void link_begin(struct client *cl, struct link *k, const struct wanted *w, uint64_t from)
{
	k->w = w;
	k->sent = k->n = k->json = 0;
	k->complete = k->overflow = k->length_next = false;
	k->from = from;
	k->version = cl->served;
	cl->t->sent++;
	cl->nbusy += w != &cl->reload;
	link_write(cl, k);
}

static void link_read(struct client *cl, struct link *k)
{
	char in[16384];
	ssize_t n;

	while (k->fd >= 0) {
		n = recv(k->fd, in, sizeof(in), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0 || !k->w ||
		    http_parser_execute(&k->parser, &callbacks, in, (size_t)n) != (size_t)n) {
			/* between two requests, the server may end a connection */
			if (n > 0 || k->w)
				note(cl, &cl->t->failed, "a request: %s",
				     n < 0 ? strerror(errno) :
				     !n ? "the connection was closed" :
				     "the answer is not HTTP");
			link_close(cl, k);
			return;
		}
		if (!k->complete)
			continue;
		take_answer(cl, k, now_ns());
		cl->nbusy -= k->w != &cl->reload;
		k->w = NULL;
		if (!http_should_keep_alive(&k->parser))
			link_close(cl, k);
		else
			http_parser_init(&k->parser, HTTP_RESPONSE);
	}
}

/* ---- a run ------------------------------------------------------------------ */

/* The time to the next arrival. */
static uint64_t gap(struct client *cl)
{
	return (uint64_t)(-log(1 - erand48(cl->seed)) / cl->load->rate * NSEC);
}

/* Send what is due on free connections. */
static void send_due(struct client *cl, uint64_t now)
{
	const struct load *load = cl->load;
	unsigned int i;
	struct link *k;

	for (i = 0; i < load->connections && !cl->ending; i++) {
		k = &cl->link[i];
		if (k->fd < 0 || k->w)
			continue;
		if (load->rate > 0 && cl->due > now)
			return;
		if (load->rate > 0 && cl->due >= cl->end) {
			cl->ending = true;
			return;
		}
		link_begin(cl, k, &cl->wanted[cl->next++ % cl->nwanted],
			   load->rate > 0 ? cl->due : now_ns());
		cl->due += load->rate > 0 ? gap(cl) : 0;
		cl->ending = load->seconds <= 0 && cl->next == cl->nwanted;
	}
}

static int swap_due(struct client *cl, uint64_t now)
{
	struct link *k = control(cl);
	int rc;

	if (k->w || cl->load->swap_every <= 0 || cl->ending || now < cl->swap_due)
		return 0;
	if (k->fd < 0)
		return failed("the connection for loads", "closed");
	rc = child_next_version(cl->ch);
	if (rc)
		return rc;
	cl->swap_due = now + (uint64_t)(cl->load->swap_every * NSEC);
	link_begin(cl, k, &cl->reload, now);
	return 0;
}

/* The time of the load has passed. */
static int finish(struct client *cl, uint64_t now)
{
	if (cl->load->seconds <= 0 || now < cl->end || cl->ending || cl->terminated)
		return 0;
	if (cl->load->stop_server) {
		cl->terminated = true;
		return child_signal(cl->ch, SIGTERM);
	}
	/* with a rate, those that arrived before the end are sent first */
	cl->ending = cl->load->rate <= 0;
	return 0;
}

static int set_timer(struct client *cl)
{
	struct itimerspec when = { 0 };
	uint64_t at = 0;

	if (cl->load->rate <= 0 && cl->load->seconds > 0 && !cl->ending && !cl->terminated)
		at = cl->end;
	/* without a free connection, wait for the next answer */
	if (cl->load->rate > 0 && !cl->ending && cl->nbusy < cl->nopen)
		at = cl->due;
	if (cl->load->swap_every > 0 && !cl->ending && !control(cl)->w &&
	    (!at || cl->swap_due < at))
		at = cl->swap_due;
	when.it_value.tv_sec = (time_t)(at / NSEC);
	when.it_value.tv_nsec = (long)(at % NSEC);
	return timerfd_settime(cl->timer, TFD_TIMER_ABSTIME, &when, NULL) ?
		failed("timer", strerror(errno)) : 0;
}

static int wait_events(struct client *cl)
{
	struct epoll_event ev[EVENTS];
	struct link *k;
	uint64_t ticks;
	int i, n;

	n = epoll_wait(cl->ep, ev, EVENTS, (int)(PATIENCE_NS / 1000000));
	if (n < 0 && errno != EINTR)
		return failed("epoll", strerror(errno));
	if (!n)
		return failed("the server", "no answer for two minutes");
	for (i = 0; i < n; i++) {
		k = ev[i].data.ptr;
		if (ev[i].data.ptr == &cl->timer) {
			(void)!read(cl->timer, &ticks, sizeof(ticks));
		} else if (ev[i].data.ptr == &cl->signals) {
			return failed("stopped", "by a signal");
		} else if (ev[i].data.ptr == cl->ch) {
			if (child_read(cl->ch))
				return -EIO;
			if (cl->ch->log < 0)
				return failed("the server has ended", cl->ch->last);
		} else if (k->fd >= 0) {
			link_write(cl, k);
			if (k->fd >= 0)
				link_read(cl, k);
		}
	}
	return 0;
}

static int run(struct client *cl)
{
	uint64_t now;
	int rc = 0;

	for (;;) {
		now = now_ns();
		/* in this order, so that a run of any length has a swap */
		rc = swap_due(cl, now);
		if (!rc)
			rc = finish(cl, now);
		if (rc)
			return rc;
		send_due(cl, now);
		if (!cl->nopen || (cl->ending && !cl->nbusy && !control(cl)->w))
			return 0;
		rc = set_timer(cl);
		if (!rc)
			rc = wait_events(cl);
		if (rc)
			return rc;
	}
}

int client_run(struct client *cl, const struct load *load, struct outcome *o)
{
	struct child *ch = cl->ch;
	uint64_t begin;
	unsigned int i;
	int rc = 0;

	memset(o, 0, sizeof(*o));
	hist_init(&o->latency);
	hist_init(&o->swap);
	cl->load = load;
	cl->o = o;
	cl->next = 0;
	cl->nopen = cl->nbusy = 0;
	cl->ending = cl->terminated = false;
	cl->link = calloc(load->connections + 1, sizeof(*cl->link));
	if (!cl->link)
		return failed("", strerror(ENOMEM));
	for (i = 0; i <= load->connections; i++)
		cl->link[i].fd = -1;
	for (i = 0; i <= load->connections && !rc; i++)
		if (i < load->connections || load->swap_every > 0 || load->next_version)
			rc = link_open(cl, &cl->link[i]);
	if (!rc && load->next_version) {
		rc = child_next_version(ch);
		if (!rc)
			link_begin(cl, control(cl), &cl->reload, now_ns());
		while (!rc && control(cl)->w)
			rc = wait_events(cl);
	}
	begin = now_ns();
	cl->end = begin + (uint64_t)(load->seconds * NSEC);
	cl->due = load->rate > 0 ? begin + gap(cl) : 0;
	cl->swap_due = begin;
	if (!rc)
		rc = run(cl);
	o->seconds = (double)(now_ns() - begin) / NSEC;
	for (i = 0; i <= load->connections; i++)
		link_close(cl, &cl->link[i]);
	free(cl->link);
	cl->link = NULL;
	return rc;
}

static int watch(struct client *cl, int fd, void *ptr)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = ptr };

	return epoll_ctl(cl->ep, EPOLL_CTL_ADD, fd, &ev);
}

int client_create(struct client **out, const struct work *w, struct child *ch, struct tally *t)
{
	struct client *cl = calloc(1, sizeof(*cl));
	sigset_t set;

	*out = cl;
	if (!cl)
		return failed("", strerror(ENOMEM));
	cl->w = w;
	cl->ch = ch;
	cl->t = t;
	cl->served = ch->version;
	cl->seed[0] = 1;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	cl->ep = epoll_create1(EPOLL_CLOEXEC);
	cl->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	cl->signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (cl->ep < 0 || cl->timer < 0 || cl->signals < 0 ||
	    watch(cl, cl->timer, &cl->timer) || watch(cl, cl->signals, &cl->signals) ||
	    watch(cl, ch->log, ch))
		return failed("epoll", strerror(errno));
	return make_requests(cl) ? failed("", strerror(ENOMEM)) : 0;
}

void client_free(struct client *cl)
{
	uint32_t i;

	if (!cl)
		return;
	for (i = 0; i < cl->nwanted; i++)
		free(cl->wanted[i].text);
	free(cl->wanted);
	free(cl->reload.text);
	close(cl->ep);
	close(cl->timer);
	close(cl->signals);
	free(cl);
}
