// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_models.c - damaged model files are refused, or load, but never do more harm than that.
 *
 *	fuzz_models TIMES FILE.onnx
 *	fuzz_models TIMES FILE-symbol.json FILE.params
 *
 * Every file is cut at TIMES places, and has some bits flipped TIMES times; what loads is
 * planned for a run, too.  The changes are the same in every run.  Meant for the address
 * sanitizer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tools/serve/graph.h>

static uint64_t state = 88172645463325252;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static const char *file;		/* beside which others are looked for */
static unsigned long loaded, planned, refused;

static void attempt(struct pawl_engine *e, const void *a, size_t a_len, const void *b,
		    size_t b_len)
{
	struct serve_shape shapes[MAX_IO];
	struct serve_slot *s;
	char err[256] = "";
	struct graph *g = graph_new("fuzz", file, 1, err, sizeof(err));
	unsigned int i, k;
	int rc;

	if (!g)
		abort();
	g->limit = (size_t)256 << 20;
	rc = b ? mxnet_parse(g, a, a_len, b, b_len) : onnx_parse(g, a, a_len);
	if (!rc)
		rc = graph_finish(g);
	if (rc) {
		if (rc >= 0 || !*err) {
			fprintf(stderr, "fuzz_models: refused without a reason: %d\n", rc);
			exit(1);
		}
		refused++;
		serve_model_free(&g->m);
		return;
	}
	loaded++;
	g->err = NULL;
	g->errsize = 0;
	for (i = 0; i < g->m.ninputs; i++) {
		shapes[i].rank = g->m.inputs[i].rank;
		for (k = 0; k < shapes[i].rank; k++)
			shapes[i].dims[k] = g->m.inputs[i].dims[k] >= 0 ?
				g->m.inputs[i].dims[k] : k == 2 ? 48 : k ? 192 : 2;
	}
	if (!serve_slot_create(&g->m, e, shapes, &s, err, sizeof(err))) {
		do
			rc = serve_slot_plan(s);
		while (rc == -EAGAIN);
		planned += !rc;
		serve_slot_destroy(s);
	}
	serve_model_free(&g->m);
}

int main(int argc, char **argv)
{
	unsigned long times = argc > 2 ? strtoul(argv[1], NULL, 10) : 0, i, k;
	struct pawl_engine *e;
	void *data[2] = { NULL };
	size_t len[2] = { 0 };
	char err[256];
	int files = argc - 2, f;

	if (!times || files > 2 || pawl_engine_create(NULL, &e))
		return 1;
	for (f = 0; f < files; f++)
		if (file_slurp(argv[2 + f], (size_t)1 << 30, &data[f], &len[f], err,
			       sizeof(err)) || !len[f]) {
			fprintf(stderr, "fuzz_models: %s cannot be read, or is empty\n",
				argv[2 + f]);
			return 1;
		}
	file = argv[2];
	attempt(e, data[0], len[0], data[1], len[1]);
	if (!planned) {
		fprintf(stderr, "fuzz_models: the file as it is was refused\n");
		return 1;
	}
	for (f = 0; f < files; f++)
		for (i = 0; i < 2 * times; i++) {
			/* of the exact size, so that the sanitizer finds what reads behind */
			size_t n = i < times ? (size_t)(next() % len[f]) : len[f];
			unsigned char *copy = malloc(n ? n : 1);

			if (!copy)
				return 1;
			memcpy(copy, data[f], n);
			for (k = 0; i >= times && k <= i % 4; k++) {
				/* the sizes and names are rather at the beginning */
				size_t at = (size_t)(next() % (i % 2 || n < 4096 ? n : 4096));

				copy[at] ^= (unsigned char)(1 << next() % 8);
			}
			attempt(e, f ? data[0] : copy, f ? len[0] : n, f ? copy : data[1],
				f ? n : len[1]);
			free(copy);
		}
	pawl_engine_destroy(e);
	for (f = 0; f < files; f++)
		free(data[f]);
	printf("refused %lu, loaded %lu, planned %lu\n", refused, loaded, planned);
	return 0;
}
