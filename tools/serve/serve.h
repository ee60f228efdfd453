/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: what its files share.
 *
 *	check.c	pawl check, without a server
 *	cmd.c	options and the configuration file	log.c	the log
 *	settings.c the settings of a model		pbtxt.c	config.pbtxt
 *	server.c threads, start and stop		conn.c	a connection
 *	http.c	requests of HTTP/1.1			answer.c answers to them
 *	route.c	the endpoints				parse.c	the body of an infer request
 *	infer.c	the life of a request, and its answer
 *	h2.c	a connection of HTTP/2			call.c	a call on it, and its messages
 *	grpc.c, grpc_infer.c the calls of gRPC
 *	sched.c	queues and batches			slots.c	slots, and planning them
 *	access.c the access log
 *	repo.c	the repository of models		load.c	loads of their versions
 *	stats.c	statistics and metrics
 *	page.c	the page at /				layers.c the times of layers
 *	light.c	runs without a worker			trace.c	traces of requests
 *	helper.c a thread for loads			text.c	large texts, as ops of the engine
 *	num.cc	numbers as text				zip.c	gzip and deflate
 *	reflect.c the description of the calls of gRPC
 *	buf.c	buffers, and their memory		frame.c	the framing of HTTP/1.1
 *
 * Threads.  Each loop is a thread with an epoll, and owns its connections.  Loop 0 also owns
 * the queues and slots of all models, so that models share the cores by their weights.  The
 * main thread owns the repository: it decides what is loaded, and publishes versions of models.
 * A helper loads and frees them.  Threads send each other messages (port.h); no object is
 * locked.
 *
 * Life of an infer request.  The loop of the connection parses the request when it is
 * complete, takes a reference to the version, and submits it to loop 0.  Loop 0 queues it, and
 * copies its tensors into a slot with those of others.  If there is no slot of these shapes, an
 * op of the engine plans one, and the request waits.  The slot runs on the engine, and its
 * completion arrives at loop 0, which sends a message to the loop of each connection.  These
 * write the answers from the slot, and the last of them returns the slot to loop 0.  Loop 0
 * executes short runs itself.
 */
#ifndef SERVE_H
#define SERVE_H

#include <http_parser.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "model.h"
#include "port.h"

#define MAX_IO		32		/* inputs, and outputs, of a model */
#define HEAD_KEPT	512		/* bytes of a head that is compared with the next one */
#define MAX_LOOPS	64
#define MAX_PREFERRED	8
#define MAX_LISTED	16		/* versions in a list of the configuration */
#define LEVELS		8		/* of priority */
enum { LISTEN_HTTP, LISTEN_GRPC, LISTEN_ADMIN, LISTENERS };
enum { TOKEN_INFER, TOKEN_ADMIN, TOKENS };	/* of the address for inference, of --admin */
#define NAME_MAX_LEN	127
enum { WORKERS, LIGHT, ENGINES };	/* engines: light.c says why there are two */

struct conn;
struct entry;
struct loop;
struct server;

/* --- configuration (cmd.c) --- */

struct model_conf {
	unsigned int max_batch;		/* rows; 0 and 1: no batches */
	uint64_t delay_ns;
	unsigned int npreferred, preferred[MAX_PREFERRED];	/* ascending */
	unsigned int queue_requests;
	uint64_t queue_bytes, slot_bytes;
	unsigned int weight;
	unsigned int instances;		/* runs at once */
	uint64_t timeout_ns;		/* of requests that give none; 0: none */
	unsigned int backend;		/* enum serve_backend */
	bool batches;			/* max_batch is stated for this model alone */
	unsigned int threads;		/* of a run in onnxruntime */
	char provider[SERVE_PROVIDER];
	enum { VERSIONS_LATEST, VERSIONS_ALL, VERSIONS_LISTED } policy;
	unsigned int nversions;		/* the latest, or those listed: */
	int64_t versions[MAX_LISTED];
};

struct named_conf {
	char name[NAME_MAX_LEN + 1];
	struct model_conf conf;
	uint32_t seen;			/* keys in the file, by their numbers */
};

/* A: those that a SIGHUP may change, while loops read them. */
struct config {
	char *repository, *host, *admin, *file, *onnxruntime;
	char *token[TOKENS], *token_file[TOKENS];
	enum { CONTROL_LOCAL, CONTROL_ON, CONTROL_OFF } control; /* at the address for inference */
	int free_fd;			/* connections have smaller descriptors, but for --admin */
	unsigned int port, grpc_port, loops, workers;
	unsigned int access_log;	/* A: one request of so many is logged; 0: none */
	unsigned int ready_any;		/* ready with one model that serves */
	unsigned int max_connections, max_header;
	uint64_t max_body, max_memory;
	uint64_t slot_memory, slot_idle_ns, model_memory;
	uint64_t idle_ns, read_ns, write_ns, grace_ns, drain_ns;
	struct model_conf model;	/* [model] */
	struct named_conf *named;
	unsigned int nnamed;
	uint32_t seen, model_seen;	/* keys in the file, by their numbers */
};

#define TOKEN_MAX 300
#define TRACEPARENT 64			/* of W3C, and its end */
/*
 * Read the file and the options again.  Returns 0, or a negative errno if they are not good, or
 * change what needs a restart; the log says what, and nothing is changed.  Otherwise token has
 * those of the loops before, which are to be freed when they have the new ones.
 */
int config_reload(struct config *cfg, int argc, char **argv, char *token[TOKENS]);
void config_free(struct config *cfg);
/* Set a key of the section of a model, and note it in stated.  Returns whether that is good. */
bool conf_set(struct model_conf *conf, uint32_t *stated, const char *key, const char *value);
/* Take the keys that are stated. */
void conf_take(struct model_conf *to, const struct model_conf *from, uint32_t stated);
bool conf_batches(uint32_t stated);	/* whether max_batch is one of them */
bool conf_good(const struct model_conf *conf);

/* --- settings (settings.c) --- */

struct settings {
	struct model_conf conf;
	uint32_t stated;		/* keys for this model alone */
	char why[512];			/* they are not good, or "" */
	char ignored[512];		/* names of what is not read */
};
void settings_read(const struct server *sv, const char *name, struct settings *s);
bool settings_same(const struct model_conf *a, const struct model_conf *b);

/* Values of grpc_port that are no ports. */
enum { GRPC_NONE = 65536, GRPC_DEFAULT };

#define SERVE_SELF "pawl serve"

/* --- statistics (stats.c) --- */

#define HIST_LE 18			/* buckets: 64 us * 2^i; the last: all */
struct counter {
	u64 n, ns;
};

/* A: any thread adds, relaxed. */
struct stats {
	struct counter success, fail, queue, input, infer, output;
	u64 inferences, executions, last_ms, submitted, refused, timed_out, canceled;
	u64 plans, alone;		/* slots planned for requests, requests run again alone */
	u64 light;			/* runs without a worker */
	u64 hist[3][HIST_LE];		/* queue, compute, total */
	u64 hist_ns[3];
	struct { u64 n, input, infer, output; } *batch;	/* [max_batch + 1] */
};

enum { HIST_QUEUE, HIST_COMPUTE, HIST_TOTAL };

void stats_add(struct counter *c, uint64_t ns);
void stats_hist(struct stats *s, int which, uint64_t ns);

/* --- models (repo.c, sched.c) --- */

/* One version that is, or was, served. */
struct version {
	struct serve_model *m;		/* I, as all above the line */
	struct entry *e;		/* a reference */
	struct stats stats;		/* A */
	pawl_var_t weights[ENGINES];
	u32 refs;			/* A: of requests and slots, and of the repository */
	struct port *home;		/* of the helper that loaded it, */
	struct msg free_msg;		/*   which frees it */
	void (*end)(struct msg *);	/*   by this */
	/* loop 0, and the helper before it is published and when it is freed */
	struct shapes *shapes[64];	/* by hash */
	struct slot *free;		/* the most recently used first */
	unsigned int nslots;
	struct slot *plan;		/* that is planned now */
	struct slot *fresh;		/* planned for requests that wait, and not used yet */
	uint64_t bytes, free_bytes;	/* of all slots, of the free ones */
	uint64_t logged_ns;		/* when the last refused shape was logged */
	char plan_error[256];		/* of the op that plans */
};

/* Shapes of the inputs that have a slot or a request: of a batch without the number of rows. */
struct shapes {
	struct shapes *next;
	bool batch;			/* I: all inputs have the same number of rows */
	enum { SHARE_UNKNOWN, SHARE_YES, SHARE_NO } share;	/* may requests share a run? */
	unsigned int nslots, nfree;
	unsigned int waiting;		/* requests in the queue */
	uint64_t scan;			/* the last one that found nothing to do for them */
	uint64_t most;			/* rows that could be planned */
	struct serve_shape in[];	/* I */
};

/* The memory of one run.  While it is planned, slots.c says who owns what. */
struct slot {
	struct msg msg;
	struct slot *next;
	struct server *sv;
	struct version *v;
	struct shapes *shapes;
	struct serve_slot *s;
	uint64_t rows;
	bool is_planned, needed;	/* needed: its request could not run without it */
	int priority;			/* of its plan, in the engine */
	uint64_t bytes;			/* of its memory, when it was last measured */
	bool by_rows;			/* each output has a row for each row of the inputs */
	bool light;			/* on the engine without workers */
	bool warm;			/* planned at the load, and kept until the end */
	uint64_t emptied;		/* bytes of its tensors that the kernel has back */
	bool is_empty;			/* these are all */
	struct slot *idle_next, *idle_prev;	/* free ones of all models; the oldest first */
	uint64_t uses;			/* runs */
	unsigned int runs, slow;	/* of this period; slow ones in a row (light.c) */
	uint64_t least_ns;		/* the shortest of the measured runs */
	uint64_t start_ns, launched_ns, done_ns;
	u32 users;			/* A: requests that still read the outputs */
	unsigned int nreqs, canceled;
	int status;
	struct request **reqs;		/* [max_batch or 1] */
};

enum request_state { REQ_NEW, REQ_QUEUED, REQ_RUNNING, REQ_DONE };

struct buf {
	char *p;
	size_t n, cap;
	bool heap;			/* made without a loop, which does not keep it */
};

struct tensor {
	const void *data;		/* in the body, or in buf */
	void *buf;
	size_t bytes, cap;
	struct serve_shape shape;
};

/* A text that ops of the engine read or write, in pieces (text.c). */
#define TEXT_MIN 16384u			/* bytes; a loop does less than that itself */
struct text {
	struct msg msg;
	struct text *next;
	struct loop *loop;
	/* Works until about this time.  Returns 0, or -EAGAIN: there is more. */
	int (*step)(struct text *t, uint64_t until_ns);
	void (*done)(struct text *t);	/* on the loop */
	int status;
};

struct parse;
struct writer;

struct request {
	struct msg submit, cancel, done;
	struct text text;		/* a large body, then a large answer */
	struct parse *parse;
	struct writer *writer;
	struct request *next, *prev;	/* loop 0: in the queue; else the loop's free list */
	struct conn *c;			/* HTTP/1.1 */
	struct call *call;		/* gRPC, with its message and its neighbours in the call */
	struct buf body;
	size_t held;
	struct request *call_next, *call_prev;
	struct loop *loop;
	struct version *v;
	struct shapes *shapes;		/* loop 0, in the queue */
	struct tensor in[MAX_IO];
	bool batch;			/* all inputs have rows, and as many */
	uint64_t rows;			/* of a batch; else 1 */
	uint64_t bytes;
	uint32_t wanted, binary;	/* outputs, bit by bit */
	uint32_t bufs;			/* inputs that have a buffer */
	bool heap;			/* an op made these, not the loop */
	struct js_str id;
	unsigned int level;		/* 0 to LEVELS - 1, 0 is the highest */
	bool layers;			/* the answer has the times of its layers */
	uint64_t first_ns;		/* its first byte */
	uint64_t arrival_ns, queued_ns, deadline_ns;	/* CLOCK_MONOTONIC; 0: none */
	unsigned int pending;		/* owner: messages from loop 0 to come */
	/* loop 0, until done */
	enum request_state state;
	bool is_canceled;
	bool alone;			/* its batch failed: it runs again without the others */
	struct slot *slot;
	uint64_t row;			/* the first one in the slot */
	int status;			/* 0, or a negative errno, with its text */
	const char *why;
	char refused[320];		/* the text, if it is of this request alone */
};

struct queue {
	struct request *head, *tail;
};

/* A version that could not be loaded. */
#define REASON 2048
struct failure {
	int64_t version;		/* 0: there is none */
	char reason[REASON];
};
#define MAX_FAILED 4			/* of a name, which are remembered */

/*
 * A name in the repository, with its settings, its queue and the use of the engines.  It exists
 * while the main thread or a version refers to it.  Loop 0, which may have it in a list, frees it.
 */
struct entry {
	char name[NAME_MAX_LEN + 1];
	struct model_conf conf;		/* I */
	struct server *sv;		/* I */
	u32 refs;			/* A */
	struct msg free_msg;
	u64 pending;			/* A: requests in the queue */
	u32 nlight;			/* A: light slots of all versions */
	/* main thread */
	struct version **served;	/* the newest first */
	unsigned int nserved, nasked;
	struct { int64_t version; bool on; } asked[MAX_LISTED]; /* loaded or unloaded alone */
	bool present, explicitly_unloaded;
	bool wanted;			/* a scan found it; it is to be loaded */
	struct failure failed[MAX_FAILED];	/* the newest version first */
	unsigned int nfailed;
	char reason[256];		/* why it is unloaded */
	/* loop 0 */
	struct queue level[LEVELS];
	unsigned int queued, inflight, planning;
	uint64_t queued_bytes, next_deadline, due;
	uint64_t pass[ENGINES];		/* its use of each engine (sched.c) */
	uint64_t run_ns;		/* of the layers of a run, smoothed */
	unsigned int launches;
	bool ran_light;			/* its last run was light */
	struct entry *next_active;
	bool active;			/* in the list of those that have a queue */
};

/*
 * What is served now.  A loop uses the one it was told last.  It refers to its versions, and is
 * freed with the last reference to it: that of the main thread, or of an answer in work.
 */
struct table {
	u32 refs;			/* A; the rest I */
	bool ready;			/* by the rule that --ready selects; else why not: */
	char reason[320];
	bool loading;			/* models that a scan has found are not loaded yet */
	unsigned int nfailed;
	struct { char name[NAME_MAX_LEN + 1]; struct failure f; } *failed;
	unsigned int n;
	struct { struct entry *e; struct version *v; } at[];	/* by name, the newest first */
};

void table_put(struct table *t);
/* Why a model has no version, or NULL. */
const char *table_why(const struct table *t, const char *name);
/* The newest version of a model, or this one. */
#define NEWEST (-1)
struct version *table_find(const struct table *t, const char *name, size_t n, int64_t version);

/* --- connections (conn.c) --- */

enum conn_state { CONN_READING, CONN_BUSY, CONN_WRITING, CONN_LINGER, CONN_DEAD };
enum { TIMER_NONE = -1, TIMER_IDLE, TIMER_READ, TIMER_WRITE, TIMER_LINGER, TIMER_BUSY,
       TIMER_H2, TIMERS };

struct conn {
	struct msg done;		/* a control call is complete */
	struct loop *loop;
	struct conn *next, *prev;	/* of the same timer */
	struct conn *dead_next, *again_next, *flush_next;
	struct h2 *h2;			/* gRPC; then what is of HTTP/1.1 below is not used */
	uint64_t turn;			/* of the loop, in which it did work */
	unsigned int work;
	int fd, timer;
	uint64_t timer_ns;
	uint64_t first_ns;		/* when the request began to arrive */
	enum conn_state state;
	bool readable, eof, keep, complete, want_continue, in_request, buried, used;
	bool yields;			/* in the loop's list: it continues in the next turn */
	http_parser parser;
	char head[HEAD_KEPT];		/* the last one, up to its last byte */
	unsigned int nhead;
	http_parser behind;		/* the parser at that byte */
	unsigned int secrets;		/* of the loop, when that head was read */
	struct buf rest;		/* received behind the current request */
	struct buf body, out;
	size_t out_at, held;		/* bytes of the body, then of the answer */
	int64_t json_length;		/* Inference-Header-Content-Length; -1 */
	int refused;			/* HTTP status of a request that is not answered else */
	const char *refused_why;
	char url[512], field[40], value[320];
	unsigned int nurl, nfield, nvalue;
	bool in_value, authorized;
	bool admin;			/* I: it came to the address for the administrator */
	unsigned char encoding, accepts; /* of the body, of the answer (zip.h) */
	/* framing (frame.c) */
	bool headed;			/* the head has arrived, but for its last byte */
	char last;			/* the last byte of the head so far */
	unsigned char framing;		/* what comes next behind it */
	unsigned int hosts, encodings;	/* how many headers of this name */
	uint64_t chunk;			/* bytes of the chunk that are left */
	enum { SITE_UNKNOWN, SITE_SAME, SITE_OTHER } site;	/* of the page, says the browser */
	char traceparent[TRACEPARENT];
	char host[64], origin[64];	/* of the request; longer ones are cut */
	unsigned int request_pending;	/* control calls that the main thread has */
	struct request *r;
	struct control *control;
};

/* A control call, which the main thread answers. */
enum control_what {
	CONTROL_INDEX, CONTROL_LOAD, CONTROL_UNLOAD, CONTROL_TRACE, CONTROL_TRACE_STOP
};
struct control {
	struct msg msg, *done;		/* done is posted to the loop */
	struct control *next;
	struct loop *loop;
	/* written by the main thread until it is done */
	enum control_what what;
	bool ready_only;
	char name[NAME_MAX_LEN + 1];
	int64_t version;		/* of a load or unload; 0: of the model */
	int http;
	char *text;			/* malloc: the answer */
};

/* An answer with this body, and the next request is read. */
void conn_answer(struct conn *c, int http, const char *type, const char *text, size_t n);
/* printf of {"error":"..."} */
void conn_error(struct conn *c, int http, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same in pieces: out_begin(), appends to c->out, out_end(). */
bool out_begin(struct conn *c);
void out_end(struct conn *c, int http, const char *type, const char *headers);
/* The same with status 200, and compressed if the client wants that. */
void out_zip(struct conn *c, const char *type, const char *headers);
#define HEAD_ROOM 1024u			/* in front of the body of an answer */
/* Without a loop, the memory is that of the heap. */
bool buf_grow(struct loop *l, struct buf *b, size_t n);
static inline bool buf_room(struct loop *l, struct buf *b, size_t n)
{
	return n <= b->cap || buf_grow(l, b, n);
}
void buf_put(struct loop *l, struct buf *b);
bool buf_add(struct loop *l, struct buf *b, const char *p, size_t n);
static inline bool buf_text(struct loop *l, struct buf *b, const char *text)
{
	return buf_add(l, b, text, strlen(text));
}
bool buf_number(struct loop *l, struct buf *b, int64_t v);
bool buf_printf(struct loop *l, struct buf *b, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* As JSON, with its quotes. */
bool buf_json(struct loop *l, struct buf *b, const char *text);
/*
 * The memory of bodies and answers: whether the holder of mine bytes may have n, and note that
 * it has them.
 */
bool mem_room(struct server *sv, size_t mine, size_t n);
void mem_hold(struct server *sv, size_t *mine, size_t n);
/*
 * The framing of a request (frame.c): what a parser has read of its head but for the last byte,
 * and of what follows, from that byte on.  Return false if it is not that of HTTP/1.1.
 */
void frame_begin(struct conn *c);
bool frame_lines(struct conn *c, const char *p, size_t n);
bool frame_chunks(struct conn *c, const char *p, size_t n);
void conn_accept(struct loop *l, unsigned int kind, unsigned int most);
struct conn *conn_open(struct loop *l, int fd, unsigned int kind);
void conn_timer(struct conn *c, int kind);
/* Whether it has had its share of this turn, with a further reception of n bytes. */
bool conn_spent(struct conn *c, size_t n);
bool conn_authorized(struct conn *c, const char *authorization);
void conn_event(struct conn *c, uint32_t events);
void conn_tick(struct loop *l);
void buf_tick(struct loop *l);		/* free the buffers that were not used for a while */
void buf_free(struct loop *l);		/* and all of them, at the end */
void conn_drain(struct loop *l);	/* no further requests */
void conn_close(struct conn *c);
void conn_again(struct loop *l);	/* those that had their share of the last turn */
void conn_continue(struct conn *c);	/* an answer that was awaited is in c->out */

/* --- a connection of HTTP/2 (h2.c): what conn.c calls --- */

int h2_open(struct conn *c);
void h2_event(struct conn *c, uint32_t events);
void h2_continue(struct conn *c);	/* read what has arrived */
void h2_tick(struct conn *c);		/* once per second */
void h2_drain(struct conn *c);
/* Cancel all calls but those on the repository; returns false if there are none of these. */
bool h2_cancel(struct conn *c);
void h2_told(struct loop *l);		/* the table has changed */
void h2_closed(struct conn *c);		/* the descriptor is closed */
void h2_free(struct conn *c);
void h2_flush(struct loop *l);		/* send what this turn has made */
void grpc_free(struct loop *l);

/* --- endpoints (route.c, infer.c) --- */

void route(struct conn *c);
/* A call on the repository.  When the main thread has answered, done->fn runs on the loop. */
struct control *control_begin(struct loop *l, enum control_what what, const char *name,
			      int64_t version, bool ready_only, struct msg *done);
void page_answer(struct conn *c);	/* (page.c) */
void infer_begin(struct conn *c, struct version *v);
void infer_forget(struct conn *c);	/* the connection is closed */
/*
 * Parse the body of an infer request.  Returns 0, or an HTTP status with a text in err; the
 * tensors point into the body, or into buffers of the loop.
 */
int infer_parse(struct loop *l, struct request *r, const struct serve_model *m,
		const char *body, size_t n, int64_t json_length, char *err, size_t size);
void infer_release(struct loop *l, struct request *r);
/* The parts that all protocols have: infer.h. */
extern const char *const server_extensions[];	/* and NULL */
/* The times of the layers, as a parameter of the answer (layers.c). */
bool layers_json(struct loop *l, struct buf *b, const struct request *r);
extern const char *const type_name[];
extern const uint8_t type_size[];

/* Let ops of the engine call step until it returns 0, then done on the loop (text.c). */
unsigned int text_threads(const struct config *cfg);
void text_begin(struct text *t, struct loop *l, int (*step)(struct text *, uint64_t),
		void (*done)(struct text *));

/* --- slots, on loop 0 (slots.c) --- */

/* The shapes of a request, which is counted in waiting; NULL: no memory. */
struct shapes *shapes_get(struct request *r);
void shapes_put(struct version *v, struct shapes *sh);
const struct slot *slot_find(const struct version *v, const struct shapes *sh, uint64_t rows);
struct slot *slot_take(struct version *v, const struct shapes *sh, uint64_t rows);
void slot_give(struct slot *s);
bool may_plan(const struct server *sv, const struct version *v, const struct shapes *sh);
/* The same if requests of these shapes can run without: that replaces no slot in use. */
bool may_plan_more(const struct server *sv, const struct version *v, const struct shapes *sh,
		   uint64_t now);
/* After a run: whether its outputs have rows for each of its requests. */
bool slot_ran(struct slot *s);
/* A slot that is to be planned by plan_continue(); NULL: no memory. */
struct slot *plan_begin(struct server *sv, struct version *v, struct shapes *sh, uint64_t rows,
			bool needed, int priority);
/* Push the next op of the plan; first: it goes before other ops of its priority. */
int plan_continue(struct slot *s, bool first);
/* The plan is complete, or it failed; then the slot is freed. */
void plan_end(struct slot *s, int status);
int slots_warm(struct server *sv, struct version *v, char *err,
	       size_t size);	/* the helper, before publishing */
void slots_leave(struct version *v);	/* loop 0, when nothing uses it, and before: */
void slots_free(struct version *v);	/* the helper */
void slots_tick(struct server *sv, uint64_t now);	/* free what was unused for long */

/* --- light runs, on loop 0 (light.c) --- */

bool light_measures(const struct slot *s);	/* whether its next run is to be timed */
void light_ran(struct slot *s, uint64_t used_ns);
void light_settle(struct slot *s);		/* move a free slot if its times demand it */
struct pawl_completion light_finish(struct server *sv);	/* run what was launched */

/* --- scheduling, on loop 0 (sched.c) --- */

void sched_submit(struct msg *m);
void sched_cancel(struct msg *m);
void sched_complete(struct slot *s, int status);
void sched_recycle(struct msg *m);	/* a slot that no request reads any more */
/* Launch what can be launched; returns when to come again, or 0. */
uint64_t sched_run(struct server *sv, uint64_t now);
void version_get(struct version *v);
void version_put(struct version *v);

/* --- repository, on the main thread (repo.c) --- */

/* Begin and end loads and calls, after each message.  sv->rescan: read the repository. */
void repo_run(struct server *sv);
bool repo_good_name(const char *name);
bool repo_busy(const struct server *sv);	/* a load is in progress, or calls wait */
void repo_free(struct server *sv);

/* --- threads for work that takes long (helper.c) --- */

struct helper {
	struct port port;
	struct server *sv;
	struct msg yield, stop, trim;	/* all may be in the port at once */
	unsigned long thread;
	bool started;			/* I */
	bool leaves, yields;		/* O */
};

int helper_start(struct helper *h, struct server *sv);
void helper_stop(struct helper *h);	/* after it has run all messages sent to it */
/* The helper is to give memory back that nothing uses: the heap's, and the cache of plans. */
enum { TRIM_HEAP = 1, TRIM_CACHE = 2 };
void helper_trim(struct server *sv, u32 what);
/* A message to the helper: its work yields to requests from now on. */
void helper_yield(struct msg *m);

/* A load of a version.  The helper owns it until the main thread receives msg. */
struct load {
	struct msg msg;
	struct server *sv;
	struct entry *e;		/* NULL: no load is in progress; a reference */
	struct entry *old;		/* that it replaces, since its settings have changed */
	struct control *ct;		/* the client's call; NULL: a scan found the model */
	int64_t only;			/* one version is loaded; 0: those that are selected */
	char unfit[512];		/* why the settings are not good, or "" */
	struct version **next;		/* that are to serve; with e those that do and stay */
	unsigned int nnext;
	uint64_t begin_ns;
	bool ended;			/* main: the message has arrived */
	int status;			/* of the first version that failed */
	struct failure failed[MAX_FAILED];
	unsigned int nfailed;
};

/* --- the server (server.c) --- */

struct loop {
	struct port port;
	struct server *sv;
	unsigned int index;
	int ep, listener[LISTENERS];
	const struct table *table;
	pawl_cq_t cq[ENGINES];		/* of loop 0 */
	uint64_t now;			/* the time of this turn */
	uint64_t clock;			/* of the timers: without the time that the loop missed */
	struct conn *timer_head[TIMERS], *timer_tail[TIMERS];
	struct conn *all_dead, *again;
	uint64_t turn;
	struct request *free_requests;
	unsigned int nconns, nadmin;	/* nadmin of them came to the address for the administrator */
	u64 busy;			/* connections that wait for an answer */
	/* free buffers, by power of two; least: of n since the last look */
	struct { void *first; size_t n, least; } bufs[24];
	size_t bufs_bytes;
	uint64_t bufs_ns;
	char *scratch;
	struct msg publish, stop, force, took, drained;
	const struct table *next_table;
	const char *token[TOKENS], *next_token[TOKENS];	/* NULL: none */
	unsigned int secrets;		/* how often a token has changed */
	struct trace *trace, *next_trace;	/* of the loop, of the main thread */
	unsigned int accesses;		/* infer requests, to sample them */
	bool draining, exiting, listening_paused[LISTENERS], report;
	struct conn *flush;		/* of HTTP/2, which have something to send */
	struct text *texts, **texts_tail;	/* that wait for an op */
	unsigned int ntexts;		/* ops in flight */
	struct call *free_calls;
	struct arena *arena;		/* of a message of protobuf */
	unsigned long thread;
};

struct server {
	struct config cfg;
	int argc;
	char **argv;
	struct pawl_engine *e[ENGINES];
	struct port port;		/* of the main thread */
	char admin[300];		/* I: where the administrator's address is, or "none" */
	bool control, metrics;		/* I: also at the address for inference */
	struct loop loops[MAX_LOOPS];
	unsigned int took, drained; /* main: loops that have the new table, that are empty */
	u32 closing;			/* A: SIGTERM has arrived: answers end connections */
	/* main */
	struct entry **entries;
	unsigned int nentries, room;
	struct table *table;
	char unreadable[320];		/* why the repository could not be read, or "" */
	bool started;			/* the loads of the first scan have ended */
	bool was_ready, notified;
	char told[320];			/* the last reason in the log */
	bool changed;			/* the table is to be made again */
	struct control *calls, **calls_tail;
	bool rescan;			/* the repository is to be read */
	bool stopping;			/* no further loads */
	unsigned int arrived;		/* messages: calls, and loads that have ended */
	struct load load;
	struct helper loader;
	/* loop 0 */
	struct entry *active;
	unsigned int inflight;		/* runs and plans */
	unsigned int planning;
	uint64_t pass[ENGINES], scan;	/* of the model that ran last; they never go back */
	uint64_t now, light_end;	/* the last completion; when light runs pause */
	struct slot *idle, *idle_tail;	/* free slots that can be freed */
	struct slot *idle_full;		/* those before it are empty */
	uint64_t idle_bytes;
	/* A: counts */
	u64 connections, requests, answers;
	u64 held;			/* bytes of bodies and answers */
	u64 freeing;			/* bytes of slots that the helper is to free */
	u32 trims;			/* what the helper is to trim */
};

/* Whether the server is ready, as health/ready says it; else the reason. */
bool loop_ready(const struct loop *l, const char **why);
uint64_t now_ns(void);
/* Run messages, completions and launches; returns when to come again, or 0. */
uint64_t loop_step(struct loop *l);
int serve_run(struct server *sv);
void publish(struct server *sv, struct table *t);
/* Tell the service manager. */
void notify(const char *state);
void entry_put(struct entry *e);
void loops_take(struct server *sv);	/* main: all loops take what is next */

/*
 * One line of JSON on standard error: pairs of key and text, then NULL.  It never waits: a line
 * without room is dropped and counted (log.c).
 */
/* A sampled request, which the thread of the log writes as text. */
struct access {
	struct msg msg;
	struct timespec time;
	const char *protocol;
	char client[64], traceparent[TRACEPARENT], id[128], model[NAME_MAX_LEN + 1];
	int64_t version;		/* 0: it is not known */
	int status;			/* of HTTP; 499: the client has gone */
	uint64_t rows, queue_ns, compute_ns, total_ns;
};
struct access *log_access_begin(void);	/* NULL: the line is dropped */
void log_access(struct access *a);
/* An infer request has ended, r if it could be read (access.c). */
void access_note(struct loop *l, const struct conn *c, const char *traceparent,
		 const struct request *r, const char *model, int64_t version, int http);
int log_start(void);
void log_stop(void);
uint64_t log_dropped(void);
void log_line(const char *level, const char *event, ...) __attribute__((sentinel));

/* --- traces (trace.c), on the main thread except the first --- */
void trace_request(struct loop *l, const struct request *r, int http);
/* A negative errno, with a text in why.  Stop makes the text, which the caller frees. */
int trace_start(struct server *sv, const char **why);
int trace_stop(struct server *sv, char **text, const char **why);
void trace_free(struct server *sv);

/* --- texts (stats.c) --- */
void stats_json(struct conn *c, const char *model, size_t n, int64_t version);
void stats_metrics(struct conn *c);

#endif
