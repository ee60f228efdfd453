// SPDX-License-Identifier: Apache-2.0
/*
 * model_run.c - runs a model of a folder, for test_models.py.
 *
 *	model_run [-w WORKERS] [-t TILES] [-n TIMES] [-mqlrbpF] DIR [DIMS:FILE]... [> outputs]
 *
 * DIMS are the sizes of an input, such as 1,3,224,224; FILE has its data.  The data of all
 * outputs goes to the standard output, and a line about each output to the standard error.
 * Without inputs the program prints the model's description.  -m: count what the last launch
 * allocates: by us, and by oneDNN.  -q: no outputs, but the median time of TIMES runs.
 * -l: as -q, and the shortest time of each layer, in microseconds.
 * -r: say whether the rows are apart, so that requests may share a run.
 * -b: in onnxruntime, -p: in pawl; without these what pawl lacks runs there.  The variable ONNXRUNTIME is
 * its path.
 * -F: first run the model with a deadline in the past, cancel a run, and move the slot to an
 * engine without workers and back.
 * Exit status: 0, or 2 if the model or a shape is refused, with the reason.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <tools/serve/slot.h>

/* Calls of malloc() while counting, and how many of them come from oneDNN (operator new). */
static unsigned int counting, mallocs, news;

void *__libc_malloc(size_t size);
void *malloc(size_t size)
{
	if (load_relaxed(&counting))
		fetch_add_relaxed(&mallocs, 1);
	return __libc_malloc(size);
}

/* Only C++ calls it: in this program that is oneDNN. */
void *_Znwm(size_t size);
void *_Znwm(size_t size)
{
	if (load_relaxed(&counting))
		fetch_add_relaxed(&news, 1);
	return __libc_malloc(size ? size : 1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void must(int rc, const char *what)
{
	if (rc) {
		fprintf(stderr, "model_run: %s: %s (%s)\n", what, strerror(-rc),
			pawl_error_text());
		exit(1);
	}
}

static void describe(const char *kind, const struct serve_io *io, unsigned int n)
{
	unsigned int i, k;

	for (i = 0; i < n; i++) {
		printf("%s %s %d", kind, io[i].name, io[i].type);
		for (k = 0; k < io[i].rank; k++)
			printf(" %lld", (long long)io[i].dims[k]);
		printf("\n");
	}
}

static bool timed;				/* measure each layer */

/* One launch, and what it ends with. */
static int run(struct pawl_engine *e, struct serve_slot *s, pawl_var_t weights, pawl_cq_t cq,
	       int64_t deadline, bool cancel)
{
	struct serve_launch how = {
		.weights = weights, .cq = cq, .tag = 7, .timed = timed,
		.deadline_ns = deadline
	};
	struct pawl_completion c;

	must(serve_slot_launch(s, &how), "launch");
	if (cancel)
		serve_slot_cancel(s);
	must(pawl_cq_wait(e, cq, -1), "wait");
	if (pawl_cq_reap(e, cq, &c, 1) != 1 || c.tag != 7) {
		fprintf(stderr, "model_run: not one completion\n");
		exit(1);
	}
	return c.status;
}

/* A run that ends early returns an error, and the next run does not. */
static void early(struct pawl_engine *e, struct serve_slot *s, pawl_var_t weights, pawl_cq_t cq)
{
	int rc;

	if (run(e, s, weights, cq, 1, false) != -ETIMEDOUT) {
		fprintf(stderr, "model_run: the deadline did not end the run\n");
		exit(1);
	}
	must(run(e, s, weights, cq, 0, false), "run after a deadline");
	rc = run(e, s, weights, cq, 0, true);
	if (rc && rc != -ECANCELED)
		must(rc, "cancel");
}

static void elsewhere(struct pawl_engine *e, struct serve_slot *s, pawl_var_t weights,
		      pawl_cq_t cq)
{
	struct pawl_config cfg;
	struct pawl_engine *to;
	pawl_var_t weights2;
	pawl_cq_t cq2;
	int i;

	pawl_config_init(&cfg);
	cfg.workers = 0;
	must(pawl_engine_create(&cfg, &to), "engine");
	must(pawl_var_create(to, &weights2), "var");
	must(pawl_cq_create(to, &cq2), "cq");
	for (i = 0; i < 3; i++) {
		must(run(e, s, weights, cq, 0, false), "run before the move");
		must(serve_slot_move(s, to), "move");
		early(to, s, weights2, cq2);
		must(serve_slot_move(s, e), "move back");
	}
	must(pawl_engine_destroy(to), "destroy");
}

/* Read the inputs from the files that the arguments name. */
static void fill(const struct serve_model *m, struct serve_slot *s,
		 const struct serve_shape *shapes, char **arg)
{
	unsigned int k;

	for (k = 0; k < m->ninputs; k++) {
		const char *file = strchr(arg[k], ':');
		size_t n = type_size(m->inputs[k].type) *
			(size_t)count(shapes[k].rank, shapes[k].dims);
		FILE *f = file ? fopen(file + 1, "rb") : NULL;
		struct stat size;

		/* strings with their lengths */
		if (m->inputs[k].type == SERVE_BYTES && f && !fstat(fileno(f), &size))
			n = (size_t)size.st_size;

		if (!f || fread(serve_slot_input(s, k, n), 1, n, f) != n) {
			fprintf(stderr, "model_run: cannot read %zu bytes of input %u\n", n, k);
			exit(1);
		}
		fclose(f);
	}
}

int main(int argc, char **argv)
{
	struct serve_shape shapes[MAX_IO] = { { 0 } };
	struct pawl_config cfg;
	struct pawl_engine *e;
	struct serve_how how = { .backend = BACKEND_AUTO };
	struct serve_model *m;
	struct serve_slot *s;
	char err[512] = "";
	pawl_var_t weights;
	pawl_cq_t cq;
	int opt, i, rc, workers = 2, tiles = 0, times = 1;
	bool count_mallocs = false, quiet = false, faults = false, rows = false;
	double *ms, *us = NULL, start;
	struct serve_step st;
	unsigned int k, o;

	while ((opt = getopt(argc, argv, "w:t:n:mqlrbpF")) != -1)
		switch (opt) {
		case 'w':
			workers = atoi(optarg);
			break;
		case 't':
			tiles = atoi(optarg);
			break;
		case 'n':
			times = atoi(optarg);
			break;
		case 'm':
			count_mallocs = true;
			break;
		case 'q':
			quiet = true;
			break;
		case 'l':
			quiet = timed = true;
			break;
		case 'r':
			rows = true;
			break;
		case 'b':
			how.backend = BACKEND_ONNXRUNTIME;
			break;
		case 'p':
			how.backend = BACKEND_NATIVE;
			break;
		case 'F':
			faults = true;
			break;
		default:
			return 1;
		}
	if (optind >= argc || times < 1)
		return 1;
	serve_onnxruntime(getenv("ONNXRUNTIME"));
	rc = serve_model_load(argv[optind], "test", 1, &how, &m, err, sizeof(err));
	if (rc) {
		fprintf(stderr, "%s\n", err);
		return 2;
	}
	if (tiles)
		((struct graph *)m)->tiles = (unsigned int)tiles;
	if (optind + 1 == argc) {
		printf("platform %s\nbatch %d\n", m->platform, m->batch);
		describe("input", m->inputs, m->ninputs);
		describe("output", m->outputs, m->noutputs);
		serve_model_free(m);
		return 0;
	}
	if ((unsigned int)(argc - optind - 1) != m->ninputs) {
		fprintf(stderr, "model_run: the model has %u inputs\n", m->ninputs);
		return 1;
	}
	for (i = 0; i < argc - optind - 1; i++) {
		char *p = argv[optind + 1 + i];

		while (*p && *p != ':' && shapes[i].rank < SERVE_RANK) {
			shapes[i].dims[shapes[i].rank++] = strtoll(p, &p, 10);
			if (*p == ',')
				p++;
		}
	}
	pawl_config_init(&cfg);
	cfg.workers = workers;
	must(pawl_engine_create(&cfg, &e), "engine");
	must(pawl_var_create(e, &weights), "var");
	must(pawl_cq_create(e, &cq), "cq");
	rc = serve_slot_create(m, e, shapes, &s, err, sizeof(err));
	if (!rc) {
		do
			rc = serve_slot_plan(s);
		while (rc == -EAGAIN);
		if (rc)
			serve_slot_destroy(s);
	}
	if (rc) {
		fprintf(stderr, "%s\n", err);
		pawl_engine_destroy(e);
		serve_model_free(m);
		return 2;
	}
	fill(m, s, shapes, argv + optind + 1);
	if (times == 1) {
		/* the memory of a slot comes and goes between runs */
		must(run(e, s, weights, cq, 0, false), "run");
		k = (unsigned int)serve_slot_empty(s, 0, 10000);
		while (serve_slot_empty(s, k, 4096) == 4096)
			k += 4096;
		fill(m, s, shapes, argv + optind + 1);
	}
	if (rows)
		fprintf(stderr, "apart %d\n", serve_slot_apart(s));
	if (faults) {
		early(e, s, weights, cq);
		elsewhere(e, s, weights, cq);
	}
	ms = calloc((size_t)times, sizeof(*ms));
	us = calloc(s->nsteps, sizeof(*us));
	if (!ms || !us)
		return 1;
	for (i = 0; i < times; i++) {
		if (count_mallocs && i == times - 1)
			store_relaxed(&counting, 1);
		start = now();
		must(run(e, s, weights, cq, 0, false), "run");
		ms[i] = now() - start;
		store_relaxed(&counting, 0);
		for (k = 0; serve_slot_step(s, k, &st); k++) {
			double d = (double)(st.end_ns - st.begin_ns) / 1e3;

			us[k] = !i || d < us[k] ? d : us[k];
		}
	}
	for (k = 0; serve_slot_step(s, k, &st); k++)
		printf("%10.1f %s %s\n", us[k], st.op, st.name);
	if (count_mallocs)
		fprintf(stderr, "ours %u onednn %u\n", mallocs, news);
	qsort(ms, (size_t)times, sizeof(*ms), by_value);
	if (quiet)
		printf("%.3f\n", ms[times / 2]);
	for (o = 0; o < m->noutputs && !quiet; o++) {
		const struct serve_shape *sh = serve_slot_output_shape(s, o);
		size_t n = serve_slot_output_bytes(s, o);

		fprintf(stderr, "output %s %d", m->outputs[o].name, m->outputs[o].type);
		for (k = 0; k < sh->rank; k++)
			fprintf(stderr, " %lld", (long long)sh->dims[k]);
		fprintf(stderr, "\n");
		if (fwrite(serve_slot_output(s, o), 1, n, stdout) != n)
			return 1;
	}
	free(ms);
	free(us);
	serve_slot_destroy(s);
	must(pawl_engine_destroy(e), "destroy");
	serve_model_free(m);
	return 0;
}
