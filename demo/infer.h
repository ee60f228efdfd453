/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files of pawl infer; those marked * serve pawl demo, too:
 *
 *   infer.c     options, and control of the run
 *   load.c *    reading the files
 *   net.c *     computing a layer
 *   gpu.c       the same on a device, with kernels.cu
 *   verify.c *  serial computation, and comparison of answers with it
 *   serve.c     requests as launches of a graph, and the load
 *   weights.c   the live weights, and the thread that swaps them
 *   report.c *  progress, the table, figures and warnings
 *   json.c      the same as JSON
 *
 * options and work belong to the thread of the command; serve.c says which fields ops read.
 * One server fills in a result, which is read after that server was freed.
 */
#ifndef PAWL_INFER_H
#define PAWL_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <pawl/engine.h>

#include "hist.h"
#include "images.h"
#include "model.h"

#define NSEC		1000000000u
#define MAX_WARNINGS	8u
#define MAX_ROUNDS	8u

struct options {
	const char *model[2];		/* prefixes; NULL: in the data folder */
	const char *images;
	const char *data;		/* the data folder; NULL: search for it */
	uint64_t requests;		/* 0: no limit */
	double duration;		/* seconds per engine; 0: no limit */
	unsigned int batch, in_flight;
	int workers;			/* -1: not given */
	int engine;			/* enum pawl_kind */
	int device;			/* enum pawl_device_kind */
	uint64_t reload_every;		/* requests; 0: never */
	double rate;			/* requests/s; 0: closed loop */
	bool poisson;
	uint64_t seed;
	const char *trace;
	bool json, naive, quick;
};

enum { SEEN = 1, RIGHT = 2 };

/* Loaded and computed once, for all engines. */
struct work {
	struct options opt;
	char *path[2], *images_path;
	char *repository;		/* the same models, as ONNX, for pawl serve */
	struct model *model[2];
	const struct model *shape;	/* model[0]; the other one has the same shape */
	struct image_set *images;
	int weighted;			/* layers that have weights */
	size_t nweights;		/* floats */
	uint32_t nbatches;
	size_t in_size, out_size;	/* floats of a batch */
	float *input;			/* [nbatches][in_size]; the last batch wraps around */
	float *expected[2];		/* [nbatches][out_size], per model */
	uint8_t *seen[2];		/* [images] the engines' answers, per model */
	uint64_t answers[2];		/* requests answered by each model */
	int cpus;
	unsigned int rounds;
	double others;			/* CPU share of other processes; < 0: unknown */
	bool ticked;			/* progress was printed on the terminal */
	uint64_t started, next_tick;	/* ns */
	char warning[MAX_WARNINGS][200];
	unsigned int nwarnings;
};

/* The results of one engine. */
struct result {
	const char *name;		/* of the engine */
	int kind, workers;
	uint64_t busy;			/* ns, sum of all rounds */
	double rate[MAX_ROUNDS];	/* requests/s */
	unsigned int nrates;
	uint64_t requests, reloads, checked, wrong, mixed;
	uint64_t late, full, unpushed;	/* with a rate */
	char first_wrong[160];
	struct pawl_stats stats;
	struct hist latency, lateness, reload;
};

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

/* ---- infer.c: messages ---- */

/* The prefix of messages. */
extern const char *self;
extern const char *const engine_name[];		/* by enum pawl_kind */

/* Print a message; returns -EIO. */
int failed(const char *what, const char *why);
/* The same for a call of the library. */
int pawl_failed(const struct result *r, const char *call);
/* Add a warning, which is printed at the end, below the table or beside the JSON. */
void warn(struct work *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- load.c ---- */

/* Fill in *w, whose options are set.  Returns 0, or -EIO after a message. */
int work_load(struct work *w);
/* Free *w, also after work_load() failed. */
void work_unload(struct work *w);

/* ---- verify.c ---- */

/* Allocate zeroed floats in whole cache lines, so that layers and slots share none. */
float *alloc_floats(size_t n);
/* Fill in input and expected.  Returns 0 or -ENOMEM. */
int verify_init(struct work *w);

/* An answer, with its batch and the version of its weights. */
struct answer {
	uint64_t request;
	uint32_t batch;
	uint64_t version;
	bool mixed;			/* the layers saw more than one version */
	const float *out;
};

/* Compare it with the serial computation; updates the counts and first_wrong in *r. */
void verify_answer(const struct work *w, const struct answer *a, struct result *r);
/* Record for the accuracy which images it contains and which of them are right. */
void verify_judge(struct work *w, const struct answer *a);

struct accuracy {
	uint32_t seen, right, held_seen, held_right;
};

struct accuracy accuracy_of(const struct work *w, int model);

/* ---- report.c ---- */

void progress_begin(struct work *w);
void progress(struct work *w, const struct result *r, uint64_t now);
void progress_end(struct work *w);

#define NQUANTILES	4
extern const unsigned int quantile[NQUANTILES];		/* permille */
extern const char *const quantile_name[NQUANTILES];

/* Requests per second over all rounds. */
double result_rate(const struct result *r);
/* The speed relative to the naive engine: the median of the rounds.  0: unknown. */
double ratio_to_naive(const struct work *w, const struct result *results, int n);
/* A duration, a quantile of durations, and a share, as texts in buf. */
const char *ns_text(char *buf, size_t len, double ns);
const char *quantile_text(char *buf, size_t len, const struct hist *h, unsigned int q);
const char *share_text(char *buf, size_t len, uint32_t part, uint32_t all);
/* The name of the CPU. */
void cpu_model(char *buf, size_t len);

void report_head(const struct work *w);
void report_warnings(struct work *w, const struct result *r);
void report_text(const struct work *w, const struct result *results, int n, bool verified);

/* ---- json.c ---- */

/* Returns 0, or -EIO after a message. */
int report_json(const struct work *w, const struct result *results, int n, bool verified);

#endif
