// SPDX-License-Identifier: Apache-2.0
/*
 * pawl check: says for models, without a server, what would run them and how, or all that blocks
 * them.
 */

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tools/pawl/cmd.h>
#include "serve.h"

#define SELF "pawl check"
#define ERR_ROOM ((size_t)1 << 20)	/* all nodes of a large model */
#define MOST_RUNS 9
#define RUN_NS 1000000000u		/* then no further run begins */

static const char help_text[] =
"Usage: pawl check [OPTION]... FILE|FOLDER...\n"
"Say what runs each model, or all that blocks it.  FILE is a model of ONNX; FOLDER has a version,\n"
"a model with its versions, or models.\n"
"\n"
"      --onnxruntime=PATH   its library, or a folder or environment of Python that has it\n"
"      --backend=WHICH      auto, native, or onnxruntime (auto)\n"
"      --no-run             read the models, but do not run them\n"
"  -h, --help               print this\n"
"\n"
"Exit status: 0: all models can be served; 1: one cannot; 2: the command line is invalid.\n";

struct checker {
	struct serve_how how;
	struct pawl_engine *e;
	pawl_var_t weights;
	pawl_cq_t cq;
	bool no_run;
	char *err;			/* [ERR_ROOM] */
	unsigned int good, bad;
};

static void print_io(const char *kind, const struct serve_io *io, unsigned int n)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		printf("  %s %s %s [", kind, io[i].name, type_name[io[i].type]);
		for (k = 0; k < io[i].rank && !io[i].any; k++)
			printf("%s%" PRId64, k ? "," : "", io[i].dims[k]);
		printf(io[i].any ? "any shape]\n" : "]\n");
	}
}

static void print_bytes(const char *what, uint64_t bytes)
{
	if (bytes < 10000)
		printf("%s %" PRIu64 " bytes", what, bytes);
	else if (bytes < 10000000)
		printf("%s %" PRIu64 " kB", what, bytes / 1000);
	else
		printf("%s %" PRIu64 " MB", what, bytes / 1000000);
}

/* Free dimensions get these sizes. */
static void shapes_of(const struct serve_model *m, int64_t rows, int64_t size,
		      struct serve_shape *in)
{
	unsigned int i, k;

	for (i = 0; i < m->ninputs; i++) {
		in[i].rank = m->inputs[i].rank;
		for (k = 0; k < in[i].rank; k++)
			in[i].dims[k] = m->inputs[i].dims[k] >= 0 ? m->inputs[i].dims[k] :
				k ? size : rows;
	}
}

static int slot_for(struct checker *c, struct serve_model *m, int64_t rows, int64_t size,
		    struct serve_slot **s)
{
	struct serve_shape in[MAX_IO];
	int rc;

	shapes_of(m, rows, size, in);
	rc = serve_slot_create(m, c->e, in, s, c->err, ERR_ROOM);
	if (rc)
		return rc;
	do
		rc = serve_slot_plan(*s);
	while (rc == -EAGAIN);
	if (rc)
		serve_slot_destroy(*s);
	return rc;
}

/* Zeros: as many as the shapes say, and empty strings. */
static int fill(const struct serve_model *m, struct serve_slot *s, int64_t rows, int64_t size)
{
	struct serve_shape in[MAX_IO];
	uint64_t bytes;
	unsigned int i;
	void *to;

	shapes_of(m, rows, size, in);
	for (i = 0; i < m->ninputs; i++) {
		bytes = m->inputs[i].type == SERVE_BYTES ? 4 : type_size[m->inputs[i].type];
		for (unsigned int k = 0; k < in[i].rank; k++)
			bytes *= (uint64_t)in[i].dims[k];
		to = serve_slot_input(s, i, bytes);
		if (!to)
			return -ENOMEM;
		memset(to, 0, bytes);
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Run it some times.  Returns the median, or 0 with a reason in c->err. */
static uint64_t measure(struct checker *c, struct serve_slot *s)
{
	uint64_t ns[MOST_RUNS], begin = now_ns();
	struct pawl_completion done;
	unsigned int n = 0;
	int rc;

	while (n < MOST_RUNS && (n < 2 || now_ns() < begin + RUN_NS)) {
		ns[n] = now_ns();
		rc = serve_slot_launch(s, &(struct serve_launch){ .weights = c->weights,
								   .cq = c->cq });
		if (!rc) {
			while (pawl_cq_reap(c->e, c->cq, &done, 1) < 1)
				pawl_cq_wait(c->e, c->cq, -1);
			rc = done.status;
		}
		if (rc) {
			serve_slot_failure(s, c->err, ERR_ROOM);
			return 0;
		}
		ns[n] = now_ns() - ns[n];
		n++;
	}
	/* the first one allocates */
	qsort(ns + 1, n - 1, sizeof(ns[0]), by_value);
	return ns[1 + (n - 1) / 2];
}

static bool any_free(const struct serve_model *m)
{
	unsigned int i, k;

	for (i = 0; i < m->ninputs; i++)
		for (k = 1; k < m->inputs[i].rank; k++)
			if (m->inputs[i].dims[k] < 0)
				return true;
	return false;
}

static void run(struct checker *c, struct serve_model *m)
{
	static const int64_t sizes[] = { 224, 64, 32, 16, 8, 1, 299, 512 };
	struct serve_slot *s, *two;
	uint64_t ns = 0, bytes = 0;
	bool apart = false, planned = false;
	unsigned int i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !ns; i++) {
		if (i && !any_free(m))
			break;
		if (slot_for(c, m, 1, sizes[i], &s))
			continue;
		planned = true;
		ns = fill(m, s, 1, sizes[i]) ? 0 : measure(c, s);
		if (ns) {
			bytes = serve_slot_bytes(s);
			apart = m->batch && serve_slot_apart(s);
			printf("  a run with one row");
			if (any_free(m))
				printf(" and %" PRId64 " for free sizes", sizes[i]);
			printf(": %.3f ms", (double)ns / 1e6);
			print_bytes(",", bytes);
			if (m->batch && !slot_for(c, m, 2, sizes[i], &two)) {
				/* the outputs of a backend count after a run */
				if (!fill(m, two, 2, sizes[i]) && measure(c, two) &&
				    serve_slot_bytes(two) > bytes)
					print_bytes(", each further row",
						    serve_slot_bytes(two) - bytes);
				serve_slot_destroy(two);
			}
			printf("\n  requests %s\n", apart ? "may share a run" : "run alone");
		}
		serve_slot_destroy(s);
	}
	if (!ns)
		printf("  no run with zeros: %s\n", *c->err ? c->err :
		       planned ? "it failed" : "the model takes none of the sizes that were tried");
}

/* A refusal has what blocks the model between semicolons. */
static void print_refusal(char *text)
{
	char *p;

	while ((p = strstr(text, "; "))) {
		*p = 0;
		printf("  %s\n", text);
		text = p + 2;
	}
	printf("  %s\n", text);
}

static void check_version(struct checker *c, const char *path)
{
	struct serve_model *m;
	int rc;

	*c->err = 0;
	rc = serve_model_load(path, "model", 1, &c->how, &m, c->err, ERR_ROOM);
	if (!rc && (m->ninputs > MAX_IO || m->noutputs > MAX_IO)) {
		snprintf(c->err, ERR_ROOM, "more than %d inputs or outputs", MAX_IO);
		serve_model_free(m);
		rc = -ENOTSUP;
	}
	if (rc) {
		printf("%s: cannot be served\n", path);
		print_refusal(c->err);
		c->bad++;
		return;
	}
	printf("%s: %s\n", path, m->backend);
	print_io("input", m->inputs, m->ninputs);
	print_io("output", m->outputs, m->noutputs);
	if (!strcmp(m->backend, "native")) {
		print_bytes("  weights:", m->bytes);
		puts("");
	}
	if (!c->no_run)
		run(c, m);
	serve_model_free(m);
	c->good++;
}

static bool has(const char *folder, const char *name)
{
	char path[4096];
	struct stat st;

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
		!stat(path, &st);
}

static int folders_only(const struct dirent *d)
{
	return *d->d_name != '.';
}

/* The greatest version, or each model, below a folder that has no files of a model itself. */
static void check_path(struct checker *c, const char *path, unsigned int depth)
{
	struct dirent **all;
	char below[4096];
	struct stat st;
	int64_t v, most = 0;
	unsigned int before = c->good + c->bad;
	int i, n;

	if (stat(path, &st)) {
		printf("%s: %s\n", path, strerror(errno));
		c->bad++;
		return;
	}
	if (!S_ISDIR(st.st_mode) || has(path, "model.onnx") || has(path, "model-symbol.json")) {
		check_version(c, path);
		return;
	}
	n = depth ? scandir(path, &all, folders_only, alphasort) : 0;
	for (i = 0; i < n; i++) {
		v = strtoll(all[i]->d_name, NULL, 10);
		most = v > most ? v : most;
	}
	for (i = 0; i < n; i++) {
		if (snprintf(below, sizeof(below), "%s/%s", path, all[i]->d_name) <
		    (int)sizeof(below) && !stat(below, &st) && S_ISDIR(st.st_mode) &&
		    (!most || strtoll(all[i]->d_name, NULL, 10) == most))
			check_path(c, below, depth - 1);
		free(all[i]);
	}
	if (n > 0)
		free(all);
	if (c->good + c->bad == before) {
		printf("%s: no model\n", path);
		c->bad++;
	}
}

static int start(struct checker *c)
{
	struct pawl_config cfg;
	int rc;

	c->err = malloc(ERR_ROOM);
	if (!c->err)
		return -ENOMEM;
	pawl_config_init(&cfg);
	cfg.workers = 1;
	rc = pawl_engine_create(&cfg, &c->e);
	if (!rc)
		rc = pawl_var_create(c->e, &c->weights);
	return rc ? rc : pawl_cq_create(c->e, &c->cq);
}

int cmd_check(int argc, char **argv)
{
	static const struct option options[] = {
		{ "onnxruntime", required_argument, NULL, 'o' },
		{ "backend", required_argument, NULL, 'b' },
		{ "no-run", no_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	static const char *const backends[] = { "auto", "native", "onnxruntime" };
	const char *library = NULL;
	struct checker c = { .how = { .backend = BACKEND_AUTO, .rows_apart = true } };
	int opt, i, rc;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1)
		switch (opt) {
		case 'o':
			library = optarg;
			break;
		case 'b':
			for (i = 0; i < 3 && strcmp(optarg, backends[i]); i++)
				;
			if (i == 3) {
				fprintf(stderr, SELF ": '%s' is not good for --backend\n", optarg);
				return STATUS_USAGE;
			}
			c.how.backend = (enum serve_backend)i;
			break;
		case 'n':
			c.no_run = true;
			break;
		case 'h':
			fputs(help_text, stdout);
			return STATUS_OK;
		default:
			return STATUS_USAGE;
		}
	if (optind == argc) {
		fprintf(stderr, SELF ": no file or folder is named\n");
		return STATUS_USAGE;
	}
	serve_onnxruntime(library);
	rc = start(&c);
	if (rc) {
		fprintf(stderr, SELF ": %s\n", rc == -ENOMEM ? "out of memory" : pawl_error_text());
		free(c.err);
		return STATUS_FAILED;
	}
	for (i = optind; i < argc; i++)
		check_path(&c, argv[i], 3);
	printf("%u served, %u not\n", c.good, c.bad);
	free(c.err);
	pawl_engine_destroy(c.e);
	return c.bad || fflush(stdout) ? STATUS_FAILED : STATUS_OK;
}
