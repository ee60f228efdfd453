// SPDX-License-Identifier: Apache-2.0
/*
 * The readers of MXNet's model files (demo/model.c) with any bytes.  An input contains
 * both files: the first two bytes, low one first, are the length of the symbol file, and the
 * .params file follows it.  0: a fixed symbol file of one layer is used; 0xffff: a fixed
 * .params file is used, and the rest is the symbol file.
 *
 * The readers either refuse with a negative errno and a message that names one of the files, or
 * accept; then the layers fit together, all weights are readable, and one row is computed.
 */
#include <errno.h>
#include "fuzz.h"
#include "../../demo/model.h"
#include "../../demo/net.h"

const char fuzz_target[] = "model";
const uint8_t *fuzz_data;
size_t fuzz_size;
static unsigned long accepted, refused;
static volatile float last_sum;	/* so that the weights are read */

static const char symbol[] =
	"{\"nodes\": [{\"op\": \"null\", \"name\": \"data\", \"inputs\": []},"
	"{\"op\": \"null\", \"name\": \"fc_weight\", \"inputs\": []},"
	"{\"op\": \"null\", \"name\": \"fc_bias\", \"inputs\": []},"
	"{\"op\": \"FullyConnected\", \"name\": \"fc\", \"attrs\": {\"num_hidden\": \"2\"},"
	"\"inputs\": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]}],"
	"\"arg_nodes\": [0, 1, 2], \"heads\": [[3, 0, 0]]}";

/* A .params file with fc_weight [2][3] and fc_bias [2], as the one layer above needs. */
static size_t params_make(uint8_t *p)
{
	static const char *const name[] = { "arg:fc_weight", "arg:fc_bias" };
	static const uint32_t dims[2][2] = { { 2, 3 }, { 2, 0 } };
	uint8_t *at = p;
	int i;

#define PUT(v, bytes)								\
	for (int b_ = 0; b_ < (bytes); b_++)					\
		*at++ = (uint8_t)((uint64_t)(v) >> 8 * b_)
	PUT(0x112, 8);
	PUT(0, 8);
	PUT(2, 8);
	for (i = 0; i < 2; i++) {
		uint32_t n = i ? 2 : 6, k;

		PUT(0xf993fac9u, 4);	/* NDARRAY_V2 */
		PUT(0, 4);		/* dense */
		PUT(i ? 1 : 2, 4);
		PUT(dims[i][0], 8);
		if (!i)
			PUT(dims[i][1], 8);
		PUT(1, 4);		/* CPU */
		PUT(0, 4);
		PUT(0, 4);		/* float */
		for (k = 0; k < n; k++)
			PUT(0x3f800000, 4);
	}
	PUT(2, 8);
	for (i = 0; i < 2; i++) {
		PUT(strlen(name[i]), 8);
		memcpy(at, name[i], strlen(name[i]));
		at += strlen(name[i]);
	}
#undef PUT
	return (size_t)(at - p);
}

static void forward(const struct model *m)
{
	float *a = calloc((size_t)m->max_dim, sizeof(*a)), *b = calloc((size_t)m->max_dim, sizeof(*b));
	int i;

	for (i = 0; i < m->nlayers; i++) {
		const struct layer *l = &m->layers[i];
		float *t = a;

		layer_forward(l, l->weight, l->bias, a, b, 1);
		a = b;
		b = t;
	}
	free(a);
	free(b);
}

static void check(const struct model *m)
{
	char err[256];
	size_t total = 0;
	int i;

	if (m->nlayers < 1 || m->in_dim < 1 || m->out_dim < 1 ||
	    m->layers[0].in_dim != m->in_dim || m->layers[m->nlayers - 1].out_dim != m->out_dim)
		fuzz_broken("accepted %d layers, %d to %d", m->nlayers, m->in_dim, m->out_dim);
	for (i = 0; i < m->nlayers; i++) {
		const struct layer *l = &m->layers[i];
		float sum = 0;
		size_t k;

		if (!l->name || l->in_dim < 1 || l->out_dim < 1 || l->in_dim > m->max_dim ||
		    l->out_dim > m->max_dim || (i && l->in_dim != l[-1].out_dim) ||
		    (l->kind == LAYER_FC) != !!l->weight)
			fuzz_broken("layer %d does not fit: %d to %d", i, l->in_dim, l->out_dim);
		for (k = 0; k < layer_nweight(l); k++)
			sum += l->weight[k];
		for (k = 0; k < layer_nbias(l); k++)
			sum += l->bias[k];
		total += layer_nweight(l);
		last_sum = sum;
	}
	if (model_same_shape(m, m, err, sizeof(err)) ||
	    model_check_io(m, m->in_dim, m->out_dim, err, sizeof(err)))
		fuzz_broken("a model is unlike itself: %s", err);
	if (total < 1 << 16 && m->max_dim < 1 << 16)
		forward(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t made[512];
	const uint8_t *sym = (const uint8_t *)symbol, *par = made;
	size_t sym_len = sizeof(symbol) - 1, par_len = 0, n;
	struct model *m = NULL;
	char err[512] = "";
	int rc;

	fuzz_data = data;
	fuzz_size = size;
	if (size < 2)
		return 0;
	n = (size_t)(data[0] | data[1] << 8);
	if (n == 0xffff) {
		sym = data + 2;
		sym_len = size - 2;
		par_len = params_make(made);
	} else {
		if (n > size - 2)
			n = size - 2;
		if (n) {
			sym = data + 2;
			sym_len = n;
		}
		par = data + 2 + n;
		par_len = size - 2 - n;
	}
	rc = model_parse(sym, sym_len, "x.json", par, par_len, "x.params", &m, err, sizeof(err));
	if (rc) {
		if (rc > 0 || m || (strncmp(err, "x.json: ", 8) && strncmp(err, "x.params: ", 10)))
			fuzz_broken("refused with %d, \"%s\"", rc, err);
		fuzz_say("%s\n", err);
		refused++;
		return 0;
	}
	accepted++;
	check(m);
	model_free(m);
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "accepted=%lu refused=%lu", accepted, refused);
}
