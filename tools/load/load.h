/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl load: measures the latency of a server of the Open Inference Protocol.
 *
 * cmd.c reads the options, http.c queries the server, model.c and input.c make the requests,
 * client.c decides when each is sent, h1.c (HTTP/1.1) and grpc.c (with h2.c) send it, and
 * report.c prints the results.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef PAWL_LOAD_H
#define PAWL_LOAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include <demo/hist.h>

#define LOAD_SELF	"pawl load"
#define MAX_MODELS	16u
#define MAX_STEPS	64u
#define MAX_SHAPES	32u
#define MAX_RANK	16u
#define MAX_STATUS	1000u	/* HTTP has three digits */
#define MAX_THREADS	64u
#define NEVER		UINT64_MAX

/* A shape from the command line, for the inputs with this name. */
struct shape_arg {
	const char *name;
	size_t name_len;
	unsigned int rank;
	int64_t dims[MAX_RANK];
};

/* The bytes of a request: head, JSON and tensors.  They do not change in a run. */
struct request {
	char *p;
	size_t n;
};

struct model {
	char *name, *version;	/* version: NULL: the server's choice */
	double share;
	struct request *requests;
	size_t nrequests;
};

/* One run: a rate, or a number of requests in flight. */
struct step {
	double rate;		/* a second; 0: closed loop */
	unsigned int concurrency;
};

struct options {
	const char *url, *input, *json_out, *hgrm;
	char *headers;		/* further header lines, each with its CRLF */
	struct model models[MAX_MODELS];
	unsigned int nmodels;
	struct step steps[MAX_STEPS];
	unsigned int nsteps;
	struct shape_arg shapes[MAX_SHAPES];
	unsigned int nshapes;
	unsigned int threads, connections;
	uint64_t batch, seed, requests, priority, timeout_us;
	uint64_t duration_ns, warmup_ns, limit_ns, wait_ns;
	bool poisson, json, zero, check, grpc;
	int end_fd;			/* an eventfd, readable when a signal has ended the run */
	/* of the server */
	char host[256], port[16], authority[288];
	struct sockaddr_storage addr;
	socklen_t addr_len;
};

/* How the measured requests of a model ended.  The sum of these counters is due. */
struct tally {
	uint64_t due;
	uint64_t good, late;		/* status 200 or OK, within the limit and beyond it */
	uint64_t refused;		/* status 503; of gRPC: RESOURCE_EXHAUSTED, UNAVAILABLE */
	uint64_t failed;		/* another status */
	uint64_t lost;			/* the connection failed, or the answer is not HTTP */
	uint64_t timed_out;		/* no answer within wait_ns, or no connection */
	uint64_t open;			/* no answer when a signal ended the run */
	/* answers that arrived in the measured time, regardless of when they were due */
	uint64_t arrived, arrived_good;
	struct hist answers, refusals;	/* latencies, from the intended start */
};

struct result {
	struct tally tally[MAX_MODELS];
	struct hist lag;		/* from the intended start until the client acted */
	uint64_t waited;		/* requests for which no connection was free */
	uint64_t retried;		/* requests that were sent again on another connection */
	uint64_t opened, opened_late;	/* connections; those opened in the measured time */
	uint64_t sent;			/* all requests in the time of cpu_ns */
	uint64_t window_ns;		/* the measured time */
	uint64_t cpu_ns, wall_ns;	/* of the busiest thread */
	uint64_t starved_ns;		/* the longest time that a thread waited for a CPU */
	uint64_t cpu_total_ns;		/* of all threads */
	uint64_t status[MAX_STATUS];	/* answers of each status */
	bool interrupted;		/* by a signal */
	char failure[512];		/* the first one, as text */
};

uint64_t load_now(void);

/* http.c: each returns 0, or -1 after a message on standard error. */
int load_http_resolve(struct options *o);
int load_http_get(const struct options *o, const char *path, int *status, char **body,
		  size_t *n);

/* Returns a socket that is connecting, or -1 with errno. */
int load_connect(const struct options *o);

/* model.c: query the inputs of the model, and make its requests. */
int load_model_prepare(const struct options *o, struct model *m);
void load_model_free(struct model *m);

/* input.c: the values of inputs, in the form of binary tensors. */
struct tensor {
	const char *name, *type;
	unsigned int rank;
	int64_t dims[MAX_RANK];
	size_t count, rows;		/* elements; rows that one row of values can fill */
	char *p;
	size_t n, cap;
};

bool load_type_known(const char *type);
size_t load_type_size(const char *type);	/* 0: BYTES */
int load_tensor_fill(struct tensor *t, bool zero, uint64_t *seed);
/* From a value of an input file: a list, {"content": ...} or {"b64": ...}. */
int load_tensor_parse(struct tensor *t, json_t *value, char *why, size_t size);
json_t *load_tensor_json(const struct tensor *t);
uint64_t load_random_next(uint64_t *seed);

/* grpc.c */
int load_grpc_prepare(const struct options *o);
/* The model's metadata, in the form of the answer over HTTP; NULL after a message. */
json_t *load_grpc_metadata(const struct options *o, const struct model *m);
/* Make the message of a request, with its prefix. */
int load_grpc_request(const struct options *o, const struct model *m,
		      const struct tensor *inputs, unsigned int n, struct request *r);

/* client.c: one run.  *r is zero before.  0, or -1 after a message. */
int load_client_run(const struct options *o, const struct step *s, struct result *r);

/* report.c */
void load_report_head(const struct options *o);
void load_report_step(const struct options *o, const struct step *s, const struct result *r);
void load_report_curve(const struct options *o, const struct result *r);
int load_report_json(const struct options *o, const struct result *r);
int load_report_hgrm(const struct options *o, const struct step *s, const struct result *r);
/* The sum over all models of a result. */
void load_tally_sum(const struct options *o, const struct result *r, struct tally *sum);

#endif
