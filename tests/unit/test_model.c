// SPDX-License-Identifier: Apache-2.0
/*
 * The reader of MXNet's model files computes the same answers as MXNet with the real files, and
 * refuses every damaged copy of them.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef PAWL_PLAIN_GEMM
#include <cblas.h>
#endif

#include "../../demo/images.h"
#include "../../demo/model.h"
#include "../../demo/net.h"
#include "../../tools/pawl/slurp.h"
#include "must.h"
#include "suite.h"

#ifndef PAWL_DATA_DIR
#define PAWL_DATA_DIR PAWL_SRCDIR "/demo/data"
#endif
#define REF_DIR PAWL_SRCDIR "/tests/data"

/* Tolerance to MXNet's outputs, which has another BLAS and another order of sums. */
#define TOLERANCE 1e-5f

struct blob {
	unsigned char *p;
	size_t len;
};

static char err[1024];
static struct blob sym, par;		/* of model-a */

static const char *data_dir(void)
{
	const char *dir = getenv("PAWL_DATA");

	return dir ? dir : PAWL_DATA_DIR;
}

static struct blob slurp(const char *dir, const char *name)
{
	char path[4096];
	struct blob b;
	void *data;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_msg(!file_slurp(path, SIZE_MAX, &data, &b.len, err, sizeof(err)), "%s", err);
	b.p = data;
	return b;
}

static struct model *load(const char *dir, const char *name)
{
	char path[4096];
	struct model *m;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_msg(!model_load(path, NULL, &m, err, sizeof(err)), "%s", err);
	return m;
}

static void setup(void)
{
#ifndef PAWL_PLAIN_GEMM
	openblas_set_num_threads(1);
#endif
	sym = slurp(data_dir(), "model-a-symbol.json");
	par = slurp(data_dir(), "model-a-0000.params");
}

static void teardown(void)
{
	free(sym.p);
	free(par.p);
}

static int parse(const void *s, size_t slen, const void *p, size_t plen, struct model **m)
{
	*m = NULL;
	err[0] = 0;
	return model_parse(s, slen, "x.json", p, plen, "x.params", m, err, sizeof(err));
}

/* Refused, with a message that begins with one of the files and has `where` in it. */
static void refused(const void *s, size_t slen, const void *p, size_t plen,
		    const char *where)
{
	struct model *m;
	int rc = parse(s, slen, p, plen, &m);

	ck_assert_msg(rc < 0, "accepted: %s", where);
	ck_assert(!m);
	ck_assert_msg(!strncmp(err, "x.json: ", 8) || !strncmp(err, "x.params: ", 10),
		      "no file: %s", err);
	ck_assert_msg(strstr(err, where), "no '%s': %s", where, err);
}

/* Through all layers, with two buffers. */
static void forward(const struct model *m, const float *in, float *out, int batch)
{
	size_t n = (size_t)m->max_dim * (size_t)batch;
	float *a = malloc(n * sizeof(*a)), *b = malloc(n * sizeof(*b)), *t;
	int k;

	ck_assert(a && b);
	memcpy(a, in, (size_t)m->in_dim * (size_t)batch * sizeof(*a));
	for (k = 0; k < m->nlayers; k++) {
		const struct layer *l = &m->layers[k];

		layer_forward(l, l->weight, l->bias, a, b, batch);
		t = a;
		a = b;
		b = t;
	}
	memcpy(out, a, (size_t)m->out_dim * (size_t)batch * sizeof(*a));
	free(a);
	free(b);
}

/* A copy of sym with the nth (from 0) `from` replaced. */
static struct blob edit(struct blob in, const char *from, const char *to, int nth)
{
	struct blob out;
	unsigned char *at = in.p;
	size_t flen = strlen(from), tlen = strlen(to), head;

	do {
		at = memmem(at, in.len - (size_t)(at - in.p), from, flen);
		ck_assert_msg(at, "no '%s'", from);
	} while (nth-- && at++);
	head = (size_t)(at - in.p);
	out.len = in.len - flen + tlen;
	out.p = malloc(out.len);
	ck_assert(out.p);
	memcpy(out.p, in.p, head);
	memcpy(out.p + head, to, tlen);
	memcpy(out.p + head + tlen, at + flen, in.len - head - flen);
	return out;
}

static void put_le(unsigned char *p, uint64_t v, int bytes)
{
	for (; bytes--; v >>= 8)
		*p++ = (unsigned char)v;
}

/* ---- the real files --------------------------------------------------------- */

START_TEST(real_models)
{
	static const struct {
		enum layer_kind kind;
		const char *name;
		int in, out;
	} want[] = {
		{ LAYER_FC, "fc1", 64, 128 }, { LAYER_ACT, "relu1", 128, 128 },
		{ LAYER_FC, "fc2", 128, 64 }, { LAYER_ACT, "tanh2", 64, 64 },
		{ LAYER_FC, "fc3", 64, 10 }, { LAYER_SOFTMAX, "softmax", 10, 10 },
	};
	static const char *const names[] = { "model-a", "model-b" };
	struct model *m[2];
	int i, k;

	for (i = 0; i < 2; i++) {
		m[i] = load(data_dir(), names[i]);
		ck_assert_int_eq(m[i]->nlayers, 6);
		ck_assert_int_eq(m[i]->in_dim, 64);
		ck_assert_int_eq(m[i]->out_dim, 10);
		ck_assert_int_eq(m[i]->max_dim, 128);
		for (k = 0; k < 6; k++) {
			const struct layer *l = &m[i]->layers[k];

			ck_assert_int_eq(l->kind, want[k].kind);
			ck_assert_str_eq(l->name, want[k].name);
			ck_assert_int_eq(l->in_dim, want[k].in);
			ck_assert_int_eq(l->out_dim, want[k].out);
			ck_assert(!l->weight == (l->kind != LAYER_FC));
			ck_assert_uint_eq(layer_nbias(l), l->bias ? (size_t)want[k].out : 0);
		}
		ck_assert_int_eq(m[i]->layers[1].act, ACT_RELU);
		ck_assert_int_eq(m[i]->layers[3].act, ACT_TANH);
	}
	ck_assert(!model_same_shape(m[0], m[1], err, sizeof(err)));
	ck_assert(memcmp(m[0]->layers[0].weight, m[1]->layers[0].weight,
			 layer_nweight(&m[0]->layers[0]) * sizeof(float)));
	model_free(m[0]);
	model_free(m[1]);
	model_free(NULL);
}
END_TEST

/* The softmax outputs of MXNet for 32 images, both models and the one of tests/data. */
START_TEST(outputs_as_mxnet)
{
	struct model *m[3] = { load(data_dir(), "model-a"), load(data_dir(), "model-b"),
			       load(REF_DIR, "ops") };
	struct image_set *set;
	char path[4096], line[1024];
	float in[64], out[10], want;
	int i, rows[3] = { 0 };
	FILE *f;

	snprintf(path, sizeof(path), "%s/digits.img", data_dir());
	ck_assert_msg(!images_load(path, &set, err, sizeof(err)), "%s", err);
	f = fopen(REF_DIR "/digits-softmax.txt", "r");
	ck_assert(f);
	while (fgets(line, sizeof(line), f)) {
		const char *p;
		char which, *end;
		unsigned int img;
		int n, k;

		if (*line == '#')
			continue;
		ck_assert_int_eq(sscanf(line, "%c %u%n", &which, &img, &n), 2);
		ck_assert_uint_lt(img, set->count);
		i = which == 'a' ? 0 : which == 'b' ? 1 : 2;
		images_input(set, img, in);
		forward(m[i], in, out, 1);
		for (k = 0, p = line + n; k < 10; k++, p = end) {
			want = strtof(p, &end);
			ck_assert(end != p);
			ck_assert_msg(fabsf(out[k] - want) <= TOLERANCE,
				      "model %c, image %u, class %d: %g, MXNet has %g",
				      which, img, k, (double)out[k], (double)want);
		}
		rows[i]++;
	}
	fclose(f);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(rows[i], 32);
		model_free(m[i]);
	}
	images_free(set);
}
END_TEST

/* MXNet's answers for every image, in batches of several sizes. */
START_TEST(answers_as_mxnet)
{
	static const int sizes[] = { 1, 3, 32, 1797 };
	struct model *m[2] = { load(data_dir(), "model-a"), load(data_dir(), "model-b") };
	struct image_set *set;
	uint8_t *want[2];
	unsigned int img, label, split, a, b, right[2] = { 0 }, differ = 0;
	char path[4096], line[128];
	float *in, *out;
	size_t i, s;
	FILE *f;

	snprintf(path, sizeof(path), "%s/digits.img", data_dir());
	ck_assert_msg(!images_load(path, &set, err, sizeof(err)), "%s", err);
	want[0] = malloc(set->count);
	want[1] = malloc(set->count);
	in = malloc(set->count * 64 * sizeof(*in));
	out = malloc(set->count * 10 * sizeof(*out));
	ck_assert(want[0] && want[1] && in && out);
	f = fopen(REF_DIR "/digits-answers.txt", "r");
	ck_assert(f);
	for (i = 0; fgets(line, sizeof(line), f); ) {
		if (*line == '#')
			continue;
		ck_assert_int_eq(sscanf(line, "%u %u %u %u %u", &img, &label, &split, &a, &b), 5);
		ck_assert_uint_lt(i, set->count);
		ck_assert_uint_eq(img, i);
		ck_assert_uint_eq(label, set->label[i]);
		ck_assert_uint_eq(split, set->split[i]);
		want[0][i] = (uint8_t)a;
		want[1][i] = (uint8_t)b;
		differ += a != b;
		right[0] += split && a == label;
		right[1] += split && b == label;
		images_input(set, (uint32_t)i, in + 64 * i);
		i++;
	}
	fclose(f);
	ck_assert_uint_eq(i, set->count);
	ck_assert_uint_ge(right[0], 450 * 97 / 100);
	ck_assert_uint_ge(right[1], 450 * 95 / 100);
	ck_assert_uint_ge(differ, 10);		/* otherwise a swap of weights could not be
						   detected */
	for (s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (b = 0; b < 2; b++) {
			for (i = 0; i < set->count; i += (size_t)sizes[s]) {
				size_t n = set->count - i;

				if (n > (size_t)sizes[s])
					n = (size_t)sizes[s];
				forward(m[b], in + 64 * i, out + 10 * i, (int)n);
			}
			for (i = 0; i < set->count; i++) {
				size_t k, best = 0;

				for (k = 1; k < 10; k++)
					if (out[10 * i + k] > out[10 * i + best])
						best = k;
				ck_assert_uint_eq(best, want[b][i]);
			}
		}
	}
	free(want[0]);
	free(want[1]);
	free(in);
	free(out);
	images_free(set);
	model_free(m[0]);
	model_free(m[1]);
}
END_TEST

/* ---- broken files ----------------------------------------------------------- */

/* Every length, some of them under a sanitizer, and the whole. */
static size_t step(size_t left)
{
	return SANITIZED && left >= 23 ? 23 : 1;
}

/* Each shorter file ends before a page that must not be touched. */
static void truncate_all(struct blob s, struct blob p)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room, len;
	unsigned char *map, *end;
	struct model *m;

	room = ((s.len > p.len ? s.len : p.len) + page - 1) / page * page;
	map = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	ck_assert(map != MAP_FAILED);
	end = map + room;
	ck_assert(!mprotect(end, page, PROT_NONE));
	for (len = 0; len <= p.len; len += step(p.len - len)) {
		memcpy(end - len, p.p, len);
		if (len == p.len)
			ck_assert_msg(!parse(s.p, s.len, end - len, len, &m), "%s", err);
		else
			refused(s.p, s.len, end - len, len, "x.params: offset ");
	}
	model_free(m);
	for (len = 0; len <= s.len; len += step(s.len - len)) {
		memcpy(end - len, s.p, len);
		if (len == s.len)
			ck_assert_msg(!parse(end - len, len, p.p, p.len, &m), "%s", err);
		else
			refused(end - len, len, p.p, p.len, "x.json: offset ");
	}
	model_free(m);
	munmap(map, room + page);
}

START_TEST(every_truncation)
{
	struct blob s = slurp(REF_DIR, "ops-symbol.json"),
		    p = slurp(REF_DIR, "ops-0000.params");

	truncate_all(sym, par);
	truncate_all(s, p);
	free(s.p);
	free(p.p);
}
END_TEST

/* Also on disk, with the path in the message. */
START_TEST(truncated_files)
{
	static const size_t lens[] = { 0, 1, 24, 63, 64, 32832, 69160, 69277 };
	char name[] = "/tmp/pawl-test-XXXXXX", symbol[4096];
	struct model *m = NULL;
	size_t i;
	int fd = mkstemp(name);

	ck_assert(fd >= 0);
	snprintf(symbol, sizeof(symbol), "%s/model-a-symbol.json", data_dir());
	ck_assert(write(fd, par.p, par.len) == (ssize_t)par.len);
	ck_assert_msg(!model_load(symbol, name, &m, err, sizeof(err)), "%s", err);
	model_free(m);
	m = NULL;
	for (i = sizeof(lens) / sizeof(lens[0]); i--; ) {
		ck_assert(!ftruncate(fd, (off_t)lens[i]));
		ck_assert_int_eq(model_load(symbol, name, &m, err, sizeof(err)), -EBADMSG);
		ck_assert_msg(strstr(err, name) && strstr(err, "offset"), "%s", err);
		ck_assert_int_eq(model_load(name, name, &m, NULL, 0), -EBADMSG);
		ck_assert(!m);
	}
	close(fd);
	unlink(name);
	ck_assert_int_eq(model_load(name, NULL, &m, err, sizeof(err)), -ENOENT);
	ck_assert_msg(strstr(err, "-symbol.json: cannot open"), "%s", err);
	ck_assert(!m);
}
END_TEST

/*
 * Refused, or such that nothing depends on the difference: the model that comes out
 * has the same layers and runs.
 */
static int refused_or_same(struct blob s, struct blob p, const struct model *good)
{
	float in[64] = { 0 }, out[10];
	struct model *m;

	if (parse(s.p, s.len, p.p, p.len, &m)) {
		ck_assert(!m);
		ck_assert_msg(!strncmp(err, "x.json: ", 8) || !strncmp(err, "x.params: ", 10),
			      "no file: %s", err);
		return 1;
	}
	ck_assert_msg(!model_same_shape(good, m, err, sizeof(err)), "%s", err);
	forward(m, in, out, 1);
	model_free(m);
	return 0;
}

/* Is the byte at off in the content of an array of model-a? */
static bool is_content(size_t off)
{
	static const size_t n[] = { 128 * 64, 128, 64 * 128, 64, 10 * 64, 10 };
	size_t i, at = 24;

	for (i = 0; i < 6; i++) {
		at += i % 2 ? 32 : 40;		/* one dimension, or two */
		if (off < at)
			return false;
		at += 4 * n[i];
		if (off < at)
			return true;
	}
	return false;
}

START_TEST(bit_flips)
{
	struct model *good;
	size_t i, kept = 0;
	int bit;

	ck_assert(!parse(sym.p, sym.len, par.p, par.len, &good));
	for (i = 0; i < sym.len; i++) {
		for (bit = SANITIZED ? i % 4 : 0; bit < 8; bit += SANITIZED ? 4 : 1) {
			sym.p[i] ^= (unsigned char)(1 << bit);
			refused_or_same(sym, par, good);
			sym.p[i] ^= (unsigned char)(1 << bit);
		}
	}
	for (i = 0; i < par.len; i++) {
		if (is_content(i))
			continue;
		for (bit = 0; bit < 8; bit++) {
			par.p[i] ^= (unsigned char)(1 << bit);
			kept += !refused_or_same(sym, par, good);
			par.p[i] ^= (unsigned char)(1 << bit);
		}
	}
	/*
	 * Only changes of contexts, of 31 bits of a number and two flips of a type are
	 * accepted.
	 */
	ck_assert_uint_eq(kept, 6 * (31 + 2));
	model_free(good);
}
END_TEST

/* Change several bytes at once, anywhere; the sanitizers check the reader. */
START_TEST(random_damage)
{
	uint32_t seed = 1;
	struct model *good;
	int round, k, n;

#define NEXT() (seed = seed * 1664525u + 1013904223u, seed >> 8)
	ck_assert(!parse(sym.p, sym.len, par.p, par.len, &good));
	for (round = 0; round < 20000; round++) {
		bool json = round & 1;
		struct blob *b = json ? &sym : &par;
		struct { size_t at; unsigned char was; } undo[4];

		n = 1 + (int)(NEXT() % 4);
		for (k = 0; k < n; k++) {
			size_t at = NEXT() % b->len;

			/* Contents accept any value, so change other bytes. */
			while (!json && is_content(at))
				at = NEXT() % 2 ? NEXT() % 64 : b->len - 1 - NEXT() % 200;
			undo[k].at = at;
			undo[k].was = b->p[at];
			b->p[at] = NEXT() % 2 ? (unsigned char)NEXT() :
				(unsigned char)"\0\1\377\177\200{}[]\",:0129"[NEXT() % 17];
		}
		refused_or_same(sym, par, good);
		while (k--)
			b->p[undo[k].at] = undo[k].was;
	}
	model_free(good);
#undef NEXT
}
END_TEST

START_TEST(wrong_symbol)
{
	static const struct {
		const char *from, *to;
		int nth;
		const char *where;
	} t[] = {
		{ "\"nodes\"", "\"n\"", 0, "no \"nodes\"" },
		{ "\"op\": \"null\"", "\"op\": 7", 0, "node 0 has no op or no name" },
		{ "\"name\": \"data\"", "\"name\": \"\"", 0, "node 0 has no op or no name" },
		{ "\"FullyConnected\"", "\"Convolution\"", 1,
		  "node 7 'fc2': operator Convolution is not supported" },
		{ "\"FullyConnected\"", "\"Activation\"", 1, "node 7 'fc2': Activation with 3 inputs" },
		{ "\"op\": \"null\"", "\"op\": \"_zeros\"", 2, "node 2 'fc1_bias': operator _zeros with 0 inputs" },
		{ "\"act_type\": \"relu\"", "\"act_type\": \"gelu\"", 0,
		  "node 4 'relu1': Activation with act_type 'gelu'" },
		{ "\"act_type\": \"relu\"", "\"act_type\": 1", 0, "act_type '(no string)'" },
		{ "\"act_type\"", "\"act\"", 0, "node 4 'relu1': Activation without act_type" },
		{ "{\"num_hidden\": \"128\"}, \n      \"inputs\": [[", "{}, \n      \"inputs\": [[", 0,
		  "node 3 'fc1': FullyConnected without num_hidden" },
		{ "\"128\"", "\"129\"", 2, "'arg:fc1_weight' is 128 x 64, but node 3 'fc1' of x.json needs 129 x 64" },
		{ "\"128\"", "\"0\"", 2, "num_hidden '0'" },
		{ "\"128\"", "\"128x\"", 2, "num_hidden '128x'" },
		{ "\"128\"", "\"99999999999999999999\"", 2, "num_hidden '99999999999999999999'" },
		{ "\"128\"", "\"128\", \"no_bias\": \"True\"", 2, "node 3 'fc1': FullyConnected without bias has 3 inputs" },
		{ "\"128\"", "\"128\", \"no_bias\": \"maybe\"", 2, "no_bias 'maybe'" },
		{ "\"attrs\": {\"num_hidden\": \"128\"}", "\"attrs\": []", 0, "node 1 'fc1_weight': \"attrs\" is no object" },
		{ "[3, 0, 0]", "[3, 1, 0]", 0, "node 4 'relu1': input 0 is not output 0" },
		{ "[3, 0, 0]", "[3, 0, 1]", 0, "node 4 'relu1': input 0 is not output 0" },
		{ "[3, 0, 0]", "[4, 0, 0]", 0, "node 4 'relu1': input 0 is not output 0" },
		{ "[3, 0, 0]", "[-1, 0, 0]", 0, "node 4 'relu1': input 0 is not output 0" },
		{ "[3, 0, 0]", "[3]", 0, "node 4 'relu1': input 0 is not output 0" },
		{ "[3, 0, 0]", "3", 0, "node 4 'relu1': input 0 is not output 0" },
		{ "[3, 0, 0]", "[2, 0, 0]", 0, "node 2 'fc1_bias' is used 2 times" },
		{ "[[3, 0, 0]]", "[[3, 0, 0], [3, 0, 0]]", 0, "node 3 'fc1' is used 2 times" },
		{ "[[3, 0, 0]]", "[[0, 0], [0, 0], [0, 0], [0, 0]]", 0, "with 4 inputs" },
		{ "[[3, 0, 0]]", "{}", 0, "node 4 'relu1': \"inputs\" is no array" },
		{ "[4, 0, 0], [5, 0, 0]", "[5, 0, 0], [4, 0, 0]", 0, "node 7 'fc2': input 1 is an operator" },
		{ "[1, 0, 0], [2, 0, 0]", "[2, 0, 0], [1, 0, 0]", 0, "'arg:fc1_bias' has 1 dimensions" },
		{ "\"name\": \"fc1_bias\"", "\"name\": \"fc9_bias\"", 0, "x.params: no array 'arg:fc9_bias', which node 2" },
		{ "\"name\": \"fc1_bias\"", "\"name\": \"fc1_weight\"", 0, "node 2: a second variable is named 'fc1_weight'" },
		{ "\"name\": \"fc2_weight\"", "\"name\": \"fc3_weight\"", 0, "'arg:fc3_weight' is 10 x 64, but node 7 'fc2' of x.json needs 64 x 128" },
		{ "\"arg_nodes\": [0, 1", "\"arg_nodes\": [0, 2", 0, "\"arg_nodes\" entry 1 is not node 1 'fc1_weight'" },
		{ "\"arg_nodes\": [0", "\"arg_nodes\": [0, 0", 0, "\"arg_nodes\" entry 1" },
		{ "\"heads\": [[", "\"heads\": [[1, 0, 0], [", 0, "\"heads\" has 2 entries" },
		{ "\"heads\": [[13, 0, 0]]", "\"heads\": []", 0, "\"heads\" has 0 entries" },
		{ "\"heads\": [[13, 0, 0]]", "\"heads\": [[14, 0, 0]]", 0, "\"heads\" entry 0" },
		{ "\"heads\": [[13, 0, 0]]", "\"heads\": [[11, 0, 0]]", 0, "is used" },
		{ "\"SoftmaxOutput\"", "\"softmax\"", 0, "node 13 'softmax': softmax with 2 inputs" },
		{ "\"name\": \"data\"", "\"name\": \"data\", \"name\": \"x\"", 0, "duplicate object key" },
		{ "\"relu1\"", "\"re\\u001b[1m\", \"op\": \"Magic\"", 0, "duplicate" },
		{ "\"act_type\": \"relu\"", "\"act_type\": \"\\u001b[1m\\n\"", 0, "act_type '?[1m?'" },
	};
	struct blob b;
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		b = edit(sym, t[i].from, t[i].to, t[i].nth);
		refused(b.p, b.len, par.p, par.len, t[i].where);
		free(b.p);
	}
	refused("{}", 2, par.p, par.len, "no \"nodes\"");
	refused("[1]", 3, par.p, par.len, "no \"nodes\"");
	refused("{\"nodes\": [1]}", 14, par.p, par.len, "node 0 has no op");
	/* Deep nesting must not use up the stack. */
	b.len = 1 << 20;
	b.p = malloc(b.len);
	ck_assert(b.p);
	memset(b.p, '[', b.len);
	refused(b.p, b.len, par.p, par.len, "x.json: offset ");
	free(b.p);
}
END_TEST

START_TEST(too_many_nodes)
{
	static const char node[] = "{\"op\": \"null\", \"name\": \"x\", \"inputs\": []},";
	char *p = malloc(sizeof(node) * 10001 + 100), *at = p;
	int i;

	ck_assert(p);
	at += sprintf(at, "{\"nodes\": [");
	for (i = 0; i < 10001; i++)
		at += sprintf(at, "%s", node);
	at[-1] = ']';
	*at++ = '}';
	refused(p, (size_t)(at - p), par.p, par.len, "10001 nodes, more than the limit");
	free(p);
}
END_TEST

/* Offsets are those of model-a-0000.params; the first array begins at 24. */
START_TEST(wrong_params)
{
	static const struct {
		size_t off;
		int bytes;
		uint64_t val;
		int rc;
		const char *where;
	} t[] = {
		{ 0, 8, 0x113, -EBADMSG, "offset 0: not an MXNet .params file" },
		{ 8, 8, 1, -EBADMSG, "offset 8: reserved" },
		{ 16, 8, 0, -EBADMSG, "offset 16: 0 arrays" },
		{ 16, 8, UINT64_MAX, -EBADMSG, "offset 16: 18446744073709551615 arrays" },
		{ 16, 8, 1000, -EBADMSG, "offset 16: 1000 arrays, and x.json has only 14 nodes" },
		{ 16, 8, 5, -EBADMSG, "names for 5 arrays" },
		{ 16, 8, 7, -EBADMSG, "array 6 has" },
		{ 24, 4, 0xF993FAC7, -EBADMSG, "offset 24: array 0 begins with 0xf993fac7" },
		{ 24, 4, 0, -EBADMSG, "offset 24: array 0 begins with 0" },
		{ 28, 4, 1, -EOPNOTSUPP, "offset 28: array 0 has storage type 1 (row_sparse)" },
		{ 28, 4, UINT32_MAX, -EOPNOTSUPP, "offset 28: array 0 has storage type -1 (unknown)" },
		{ 32, 4, 0, -EBADMSG, "offset 32: array 0 has 0 dimensions" },
		{ 32, 4, 33, -EBADMSG, "offset 32: array 0 has 33 dimensions" },
		{ 32, 4, UINT32_MAX, -EBADMSG, "offset 32: array 0 has 4294967295 dimensions" },
		{ 36, 8, 0, -EBADMSG, "offset 36: array 0 has 0 in dimension 0" },
		{ 36, 8, UINT64_MAX, -EBADMSG, "offset 36: array 0 has -1 in dimension 0" },
		{ 36, 8, 1ull << 62, -EBADMSG, "offset 36: array 0 has 4611686018427387904" },
		{ 44, 8, 1ull << 57, -EBADMSG, "offset 44: array 0 has 144115188075855872 in dimension 1" },
		{ 52, 4, 4, -EBADMSG, "offset 52: array 0 has context 4(0)" },
		{ 56, 4, UINT32_MAX, -EBADMSG, "offset 52: array 0 has context 1(-1)" },
		{ 60, 4, 2, -EOPNOTSUPP, "offset 60: array 0 has type 2 (float16)" },
		{ 60, 4, 99, -EOPNOTSUPP, "offset 60: array 0 has type 99 (unknown)" },
		{ 64, 4, 0x7fc00000, -EBADMSG, "offset 64: element 0 of 'arg:fc1_weight' is not finite" },
		{ 68, 4, 0xff800000, -EBADMSG, "offset 68: element 1 of 'arg:fc1_weight' is not finite" },
		/* From here on the file is the same up to its list of names. */
		{ 69144, 8, 5, -EBADMSG, "offset 69144: 5 names for 6 arrays" },
		{ 69152, 8, UINT64_MAX, -EBADMSG, "offset 69160: truncated: a name needs 18446744073709551615 bytes" },
		{ 69152, 8, 4, -EBADMSG, "offset 69152: name 0 does not begin" },
		{ 69160, 1, 'A', -EBADMSG, "offset 69152: name 0 does not begin" },
		{ 69160, 2, 'a' | 'u' << 8, -EBADMSG, "offset 69152: name 0 does not begin" },
		{ 69165, 1, 0, -EBADMSG, "offset 69152: name 0 does not begin" },
		{ 69166, 1, '9', -EBADMSG, "no array 'arg:fc1_weight', which node 1 of x.json needs" },
		{ 69230, 1, '1', -EBADMSG, "offset 69216: a second array is named 'arg:fc1_bias'" },
	};
	struct model *m;
	struct blob b;
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		b.len = par.len;
		b.p = malloc(b.len);
		ck_assert(b.p);
		memcpy(b.p, par.p, b.len);
		put_le(b.p + t[i].off, t[i].val, t[i].bytes);
		refused(sym.p, sym.len, b.p, b.len, t[i].where);
		ck_assert_int_eq(parse(sym.p, sym.len, b.p, b.len, &m), t[i].rc);
		free(b.p);
	}
	/* More than the list contains. */
	b.len = par.len + 1;
	b.p = calloc(1, b.len);
	ck_assert(b.p);
	memcpy(b.p, par.p, par.len);
	refused(sym.p, sym.len, b.p, b.len, "offset 69278: 1 bytes after the last name");
	free(b.p);
	/* Another network's arrays. */
	b = slurp(REF_DIR, "ops-0000.params");
	refused(sym.p, sym.len, b.p, b.len, "'arg:fc1_weight' is 12 x 64, but node 3");
	free(b.p);
}
END_TEST

/* An array that no node asks for: the two files do not belong together. */
START_TEST(extra_array)
{
	struct blob b = { malloc(par.len + 72 + 17), 69144 };

	ck_assert(b.p);
	memcpy(b.p, par.p, b.len);
	b.p[16] = 7;
	memcpy(b.p + b.len, par.p + 69072, 72);		/* a second fc3_bias */
	b.len += 72;
	memcpy(b.p + b.len, par.p + 69144, par.len - 69144);
	b.p[b.len] = 7;
	b.len += par.len - 69144;
	put_le(b.p + b.len, 9, 8);
	memcpy(b.p + b.len + 8, "arg:extra", 9);
	b.len += 17;
	refused(sym.p, sym.len, b.p, b.len,
		"offset 69144: array 'arg:extra' is used by no node of x.json");
	free(b.p);
}
END_TEST

/* ---- what else MXNet may have written ---------------------------------------- */

/* model-a's arrays with older heads, and the weights that come out. */
static void old_params(int version)
{
	static const struct { uint32_t ndim, d0, d1; } shape[] = {
		{ 2, 128, 64 }, { 1, 128, 1 }, { 2, 64, 128 }, { 1, 64, 1 }, { 2, 10, 64 },
		{ 1, 10, 1 },
	};
	struct blob b = { malloc(par.len), 24 };
	size_t i, k, at = 24;
	struct model *m, *good;

	ck_assert(b.p);
	memcpy(b.p, par.p, 24);
	for (i = 0; i < 6; i++) {
		size_t rest = 12 + 4 * (size_t)shape[i].d0 * shape[i].d1;

		if (version == 1) {
			put_le(b.p + b.len, 0xF993FAC8, 4);
			b.len += 4;
		}
		put_le(b.p + b.len, shape[i].ndim, 4);
		b.len += 4;
		for (k = 0; k < shape[i].ndim; k++) {
			put_le(b.p + b.len, k ? shape[i].d1 : shape[i].d0, version == 1 ? 8 : 4);
			b.len += version == 1 ? 8 : 4;
		}
		at += 12 + 8 * (size_t)shape[i].ndim;
		memcpy(b.p + b.len, par.p + at, rest);
		b.len += rest;
		at += rest;
	}
	memcpy(b.p + b.len, par.p + at, par.len - at);
	b.len += par.len - at;

	ck_assert(!parse(sym.p, sym.len, par.p, par.len, &good));
	ck_assert_msg(!parse(sym.p, sym.len, b.p, b.len, &m), "%s", err);
	ck_assert(!model_same_shape(m, good, err, sizeof(err)));
	for (i = 0; i < 6; i++) {
		const struct layer *x = &m->layers[i], *y = &good->layers[i];

		if (x->weight)
			ck_assert(!memcmp(x->weight, y->weight,
					  layer_nweight(x) * sizeof(float)));
		if (x->bias)
			ck_assert(!memcmp(x->bias, y->bias, layer_nbias(x) * sizeof(float)));
	}
	for (i = 0; i < b.len; i += i < 100 ? 1 : 97)
		refused(sym.p, sym.len, b.p, i, "x.params: offset ");
	model_free(m);
	model_free(good);
	free(b.p);
}

START_TEST(params_of_old_versions)
{
	old_params(0);
	old_params(1);
}
END_TEST

/* "param" for operators and "attr" for users, inputs of two numbers: before 1.0. */
START_TEST(symbol_of_old_versions)
{
	static const char *const word[] = { "\"attr\"", "\"param\"" };
	struct model *m, *good;
	struct blob b, next;
	int k, n;

	ck_assert(!parse(sym.p, sym.len, par.p, par.len, &good));
	for (k = 0; k < 2; k++) {
		b = edit(sym, "[3, 0, 0]", "[3, 0]", 0);
		for (n = 0; n < 12; n++) {
			if (!memmem(b.p, b.len, "\"attrs\": {\"", 11))
				break;
			next = edit(b, "\"attrs\"", word[k], 0);
			free(b.p);
			b = next;
		}
		ck_assert_int_gt(n, 5);
		ck_assert_msg(!parse(b.p, b.len, par.p, par.len, &m), "%s", err);
		ck_assert(!model_same_shape(m, good, err, sizeof(err)));
		model_free(m);
		free(b.p);
	}
	model_free(good);
}
END_TEST

START_TEST(other_operators)
{
	struct blob s = slurp(REF_DIR, "ops-symbol.json"),
		    p = slurp(REF_DIR, "ops-0000.params");
	static const struct {
		const char *from, *to, *where;
		int nth;
	} t[] = {
		{ "\"axis\": \"-1\"", "\"axis\": \"0\"", "softmax with axis '0'", 0 },
		{ "\"temperature\": \"0.5\"", "\"temperature\": \"0\"", "temperature '0'", 0 },
		{ "\"temperature\": \"0.5\"", "\"temperature\": \"nan\"", "temperature 'nan'", 0 },
		{ "\"temperature\": \"0.5\"", "\"temperature\": \"\"", "temperature ''", 0 },
		{ "\"temperature\": \"0.5\"", "\"dtype\": \"float16\"", "dtype 'float16'", 0 },
		{ "\"temperature\": \"0.5\"", "\"use_length\": \"True\"", "use_length 'True'", 0 },
		{ "\"no_bias\": \"True\"", "\"no_bias\": \"False\"", "FullyConnected with bias has 2 inputs", 1 },
	};
	struct model *m, *a;
	struct blob b;
	size_t i;

	ck_assert_msg(!parse(s.p, s.len, p.p, p.len, &m), "%s", err);
	ck_assert_int_eq(m->nlayers, 8);	/* Flatten is none */
	ck_assert(!m->layers[0].bias);
	ck_assert_int_eq(m->layers[1].act, ACT_SIGMOID);
	ck_assert_int_eq(m->layers[3].act, ACT_SOFTRELU);
	ck_assert_int_eq(m->layers[5].act, ACT_SOFTSIGN);
	ck_assert(m->layers[7].temperature == 0.5f);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		b = edit(s, t[i].from, t[i].to, t[i].nth);
		refused(b.p, b.len, p.p, p.len, t[i].where);
		free(b.p);
	}
	/* Not the same: other layers, another temperature. */
	a = load(data_dir(), "model-a");
	ck_assert_int_eq(model_same_shape(a, m, err, sizeof(err)), -EINVAL);
	ck_assert_str_eq(err, "6 layers, and 8 in the other model");
	model_free(a);
	b = edit(s, "\"0.5\"", "\"0.25\"", 0);
	ck_assert_msg(!parse(b.p, b.len, p.p, p.len, &a), "%s", err);
	ck_assert_int_eq(model_same_shape(a, m, err, sizeof(err)), -EINVAL);
	ck_assert_msg(strstr(err, "layer 7: 'softmax'"), "%s", err);
	model_free(a);
	free(b.p);
	ck_assert(!model_check_io(m, 64, 10, err, sizeof(err)));
	ck_assert_int_eq(model_check_io(m, 65, 10, err, sizeof(err)), -EINVAL);
	ck_assert_msg(strstr(err, "layer 0 'fc1' takes rows of 64"), "%s", err);
	ck_assert_int_eq(model_check_io(m, 64, 9, err, sizeof(err)), -EINVAL);
	ck_assert_msg(strstr(err, "layer 7 'softmax' has rows of 10"), "%s", err);
	model_free(m);
	free(s.p);
	free(p.p);
}
END_TEST

/* Where naive formulas overflow, and in place. */
START_TEST(arithmetic)
{
	static const float x[4] = { -200, -1, 0, 200 };
	static const float want[5][4] = {
		{ 0, 0, 0, 200 },
		{ 0, 0.26894142f, 0.5f, 1 },
		{ -1, -0.76159416f, 0, 1 },
		{ 0, 0.31326169f, 0.69314718f, 200 },
		{ -200.f / 201, -0.5f, 0, 200.f / 201 },
	};
	struct layer l = { .kind = LAYER_ACT, .in_dim = 4, .out_dim = 4 };
	float out[8], sum;
	int a, i;

	for (a = 0; a < 5; a++) {
		l.act = (enum layer_act)a;
		memcpy(out, x, sizeof(x));
		layer_forward(&l, NULL, NULL, out, out, 1);
		for (i = 0; i < 4; i++)
			ck_assert_msg(fabsf(out[i] - want[a][i]) < 1e-6f, "act %d of %g: %g",
				      a, (double)x[i], (double)out[i]);
	}
	l.kind = LAYER_SOFTMAX;
	l.temperature = 1;
	for (i = 0; i < 8; i++)
		out[i] = i < 4 ? x[i] : 1000;
	layer_forward(&l, NULL, NULL, out, out, 2);
	for (sum = 0, i = 0; i < 4; i++) {
		sum += out[i];
		ck_assert(fabsf(out[4 + i] - 0.25f) < 1e-6f);
	}
	ck_assert(fabsf(sum - 1) < 1e-6f && out[3] > 0.999f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model");
	TCase *tc = tcase_create("model");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, real_models);
	tcase_add_test(tc, outputs_as_mxnet);
	tcase_add_test(tc, answers_as_mxnet);
	tcase_add_test(tc, every_truncation);
	tcase_add_test(tc, truncated_files);
	tcase_add_test(tc, bit_flips);
	tcase_add_test(tc, random_damage);
	tcase_add_test(tc, wrong_symbol);
	tcase_add_test(tc, too_many_nodes);
	tcase_add_test(tc, wrong_params);
	tcase_add_test(tc, extra_array);
	tcase_add_test(tc, params_of_old_versions);
	tcase_add_test(tc, symbol_of_old_versions);
	tcase_add_test(tc, other_operators);
	tcase_add_test(tc, arithmetic);
	suite_add_tcase(s, tc);	return suite_run(s);
}
