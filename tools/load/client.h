/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What client.c shares with h1.c and grpc.c, which send its requests.
 */
#ifndef LOAD_CLIENT_H
#define LOAD_CLIENT_H

#include <http_parser.h>
#include <pthread.h>

#include "h2.h"
#include "load.h"

#define RECV_SIZE	(256u << 10)
#define BODY_SHOWN	300u

struct thread;

/* What sends one request at a time: a connection of HTTP/1.1, or a call of gRPC. */
struct call {
	struct call *prev, *next;	/* of the list of its state */
	struct thread *t;
	bool measured;
	bool again;			/* it is sent for the second time, or will be */
	struct call *next_again;	/* gRPC: of t->again */
	const struct request *request;
	unsigned int model;
	uint64_t start;			/* intended */
	union {
		struct {
			http_parser parser;
			int fd;			/* -1: not open */
			uint32_t events;	/* for which epoll waits */
			bool used;		/* an answer has arrived on this connection */
			bool got;		/* a byte of the present answer has arrived */
			bool complete, keep;	/* the answer has ended; keep the connection */
			size_t sent;
		} h1;
		struct h2_call h2;
	};
};

struct list {
	struct call *head, *tail;
};

/* How requests are sent.  All functions run on the thread. */
struct transport {
	/* Allocate the calls, t->calls and t->ncalls.  Returns 0 or an errno. */
	int (*init)(struct thread *t);
	void (*fini)(struct thread *t);
	/* Send c->request; load_answered() or load_lost() is called at its end. */
	void (*start)(struct thread *t, struct call *c);
	/* The answer of c is no longer needed. */
	void (*drop)(struct thread *t, struct call *c);
	/* epoll has reported events. */
	void (*event)(struct thread *t, void *ptr, uint32_t events);
	/* Called before the thread waits.  May be NULL. */
	void (*flush)(struct thread *t);
};

extern const struct transport load_h1, load_grpc;

struct thread {
	const struct options *o;
	const struct step *step;
	const struct transport *transport;
	unsigned int index;
	pthread_t id;
	int epfd;
	uint64_t begin, t0, t1;		/* warm-up, measured time, its end (or NEVER) */
	uint64_t quota;			/* of requests, or NEVER */
	uint64_t now;
	/* the schedule */
	bool ended;			/* the schedule has no further request */
	uint64_t next;			/* open loop: intended start of the next request */
	uint64_t short_at;		/* the last time at which no call was free */
	uint64_t count;			/* requests of the schedule, for a constant rate */
	double at, gap;			/* Poisson: the exact time; mean gap */
	uint64_t seed;
	double credit[MAX_MODELS];
	size_t cursor[MAX_MODELS];
	/* calls: idle ones take turns; those with a request are in order of start */
	struct list idle, busy, closed, paused;
	struct call *calls;
	unsigned int ncalls;
	struct call *shown;		/* whose body becomes the text of the first failure */
	size_t nbody;
	char body[BODY_SHOWN];
	/* gRPC: connections, which take turns: nlinks, and those that end their last calls */
	struct h2 **links, *dirty;
	unsigned int nlinks, nopen, link, nslots;
	struct call *again;		/* whose requests the server has not processed */
	uint64_t last;			/* arrival of the last measured answer */
	uint64_t stopped;		/* when a signal ended the run; 0: none did */
	uint64_t cpu0, wall0, starved0, nsent, nsent0;
	bool sampled;
	struct result *r;
	char *buf;
};

/* How an answer counts. */
enum outcome { ANSWERED, REFUSED, FAILED };

/* The answer of c has arrived.  code is its status; c may be used again if keep is true. */
void load_answered(struct thread *t, struct call *c, enum outcome what, unsigned int code,
		   bool keep);
/* The request of c has no answer, because of why. */
void load_lost(struct thread *t, struct call *c, const char *why);
/*
 * May the request of c, which the server has not processed, be sent once more?  Counts it.
 */
bool load_again(struct thread *t, struct call *c);
/* Keep the text of the first failure. */
void load_failure(struct thread *t, const char *what, const char *detail, size_t n);
/* The connection of an idle call has ended. */
void load_closed(struct thread *t, struct call *c);
/* Count a connection that is opened. */
void load_opened(struct thread *t);
/* The thread's share of a whole number. */
unsigned int load_part(const struct thread *t, unsigned int whole);

#endif
