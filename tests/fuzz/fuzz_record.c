// SPDX-License-Identifier: Apache-2.0
/*
 * The reader of recordings (tools/pawl/record.c) and the replay with any bytes.  If the first
 * byte of an input is 0, the rest is the file.  Otherwise the target inserts the magic numbers
 * and checksums of the chunks, so that the code behind those checks is reached.
 *
 * The reader either refuses with a negative errno and a message that names the file and what
 * is wrong, or accepts; then every number is within its bounds.  The reader of large recordings
 * (tools/pawl/flow.c) leaves the file to it, or finds the same.  If the ops have a serial
 * order, each of them is in it once, every thread's ops in the order of its pushes, and an
 * engine that replays it keeps the order.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fuzz.h"
#include "../../core/record_format.h"
#include "../../tools/pawl/flow.h"
#include "../../tools/pawl/record.h"
#include "../../tools/pawl/replay.h"
#include "../../tools/pawl/slurp.h"

const char fuzz_target[] = "record";
const uint8_t *fuzz_data;
size_t fuzz_size;
static unsigned long accepted, refused, no_order, replayed, flowed;

static void put_le32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}

static void put_le64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, 8);
}

/* Insert what a writer puts at the beginning of each chunk; the last chunk may be truncated. */
static void seal(uint8_t *p, size_t n)
{
	size_t at = 0, padded;
	uint32_t bytes;

	for (; n - at >= REC_HEAD; at += REC_HEAD + padded) {
		uint8_t *h = p + at;
		size_t left = n - at - REC_HEAD;

		bytes = get_le32(h + 8);
		/*
		 * Mostly there is one chunk: if a length is too large, the chunk extends to the
		 * end.
		 */
		if (bytes > left && bytes > 1u << 16) {
			bytes = (uint32_t)(left & ~(size_t)7);
			put_le32(h + 8, bytes);
		}
		padded = ((size_t)bytes + 7) & ~(size_t)7;
		put_le32(h, REC_MAGIC);
		if (padded <= left) {
			memset(h + REC_HEAD + bytes, 0, padded - bytes);
			put_le64(h + 40, rec_sum(h + REC_HEAD, padded));
		}
		put_le64(h + 48, rec_sum(h, REC_HEAD - 8));
		if (padded > left)
			break;
	}
}

static void check(const struct recording *r)
{
	size_t i, j, accesses = 0;

	if (strcmp(r->format, "pawl") || r->version < REC_VERSION_OLD ||
	    r->version > REC_VERSION || r->whole > r->bytes ||
	    !memchr(r->program, 0, sizeof(r->program)))
		fuzz_broken("accepted version %u, %lu of %lu bytes", r->version,
			    (unsigned long)r->whole, (unsigned long)r->bytes);
	for (i = 0; i < r->nops; i++) {
		const struct rec_op *o = &r->ops[i];

		if (o->engine >= r->nengines || o->access + o->naccesses > r->naccesses || !o->name ||
		    strlen(o->name) > REC_NAME_MAX || (o->ended && !o->begun) ||
		    (o->ended && o->end < o->begin) || (o->undone && o->begun) ||
		    (o->parent != REC_NONE && o->parent >= r->nops))
			fuzz_broken("op %zu of %zu is out of bounds", i, r->nops);
		accesses += o->naccesses;
		for (j = 0; j < o->naccesses; j++) {
			const struct rec_access *a = &r->accesses[o->access + j];

			if (a->var >= r->nvars || (a->placed && !o->begun))
				fuzz_broken("access %zu of op %zu: var %u of %zu", j, i, a->var, r->nvars);
			if (j && a->var == a[-1].var)
				fuzz_broken("op %zu names var %u twice", i, a->var);
		}
	}
	for (i = 0; i < r->nnodes; i++) {
		const struct rec_node *n = &r->nodes[i];

		if (n->op >= r->nops || i - r->ops[n->op].node >= r->ops[n->op].nnodes ||
		    !r->ops[n->op].launch || !n->begun || n->succ + n->nsucc > r->nsucc ||
		    (n->ended && n->end < n->begin) || strlen(n->name) > REC_NAME_MAX ||
		    rec_node_find(r, &r->ops[n->op], n->number) != n)
			fuzz_broken("body %zu of %zu is out of bounds", i, r->nnodes);
	}
	if (accesses != r->naccesses)
		fuzz_broken("%zu accesses of ops, %zu in all", accesses, r->naccesses);
	for (i = 0; i < r->nvars; i++)
		if (r->vars[i].engine >= r->nengines)
			fuzz_broken("var %zu is of no engine", i);
	for (i = 0; i < r->nwaits; i++)
		if ((r->waits[i].var != REC_NONE && r->waits[i].var >= r->nvars) ||
		    (r->waits[i].after != REC_NONE && r->waits[i].after >= r->nops))
			fuzz_broken("wait %zu is out of bounds", i);
}

/*
 * Check that each op occurs once, and each thread's ops in the order of their pushes, those
 * that began before the others.
 */
static void check_order(const struct recording *r, const uint32_t *order, size_t n)
{
	size_t *place = calloc(r->nops + 1, sizeof(*place)), i, alive = 0;

	for (i = 0; i < r->nops; i++)
		alive += !r->ops[i].undone;
	if (n != alive)
		fuzz_broken("%zu ops in the order of %zu", n, alive);
	for (i = 0; i < n; i++) {
		if (order[i] >= r->nops || r->ops[order[i]].undone || place[order[i]])
			fuzz_broken("place %zu has op %u", i, order[i]);
		place[order[i]] = i + 1;
	}
	for (i = 1; i < r->nops; i++) {
		const struct rec_op *a = &r->ops[i - 1], *b = &r->ops[i];

		if (a->engine == b->engine && a->thread == b->thread && !a->undone && !b->undone &&
		    a->begun == b->begun && place[i - 1] > place[i])
			fuzz_broken("ops %zu and %zu change places", i - 1, i);
	}
	free(place);
}

struct flow_seen {
	const struct recording *r;
	const uint32_t *order;	/* NULL: the first run, in which numbers are not known */
	size_t n, ops, waits, accesses, nodes;
};

static int flow_op(void *ctx, const struct flow_op *op)
{
	struct flow_seen *seen = ctx;
	const struct rec_op *a = &op->one->ops[0], *b;
	uint32_t j;

	if (op->place != seen->ops++)
		fuzz_broken("op %u has place %lu", op->number, (unsigned long)op->place);
	seen->accesses += a->naccesses;
	seen->nodes += a->nnodes;
	if (!seen->order)
		return 0;
	if (op->place >= seen->n || op->number != seen->order[op->place])
		fuzz_broken("large: op %u at place %lu", op->number, (unsigned long)op->place);
	b = &seen->r->ops[op->number];
	if (a->index != b->index || a->gen != b->gen || a->push != b->push || a->begin != b->begin ||
	    a->end != b->end || a->parent != b->parent || a->status != b->status ||
	    a->launch != b->launch || a->ends != b->ends || a->nnodes != b->nnodes ||
	    a->naccesses != b->naccesses || strcmp(a->name, b->name))
		fuzz_broken("large: op %u differs (parents %u and %u)", op->number, a->parent, b->parent);
	for (j = 0; j < a->naccesses; j++) {
		const struct rec_access *x = &op->one->accesses[j],
					*y = &seen->r->accesses[b->access + j];

		if (x->write != y->write || x->placed != y->placed || x->version != y->version ||
		    x->var >= seen->r->nvars)
			fuzz_broken("large: access %u of op %u differs", j, op->number);
	}
	return 0;
}

static void flow_wait(void *ctx, const struct rec_wait *w)
{
	struct flow_seen *seen = ctx;

	(void)w;
	seen->waits++;
}

/*
 * The same file, read as a large one.  It may be left to the other reader; otherwise both must say
 * the same.  r: NULL if the other one refused it.
 */
static void flow(const uint8_t *data, size_t size, const char *why, const struct recording *r,
		 const uint32_t *order, size_t n)
{
	static const struct flow_sink sink = { .op = flow_op, .wait = flow_wait };
	const struct recording *mine;
	struct flow *f = NULL;
	char path[64];
	int fd = memfd_create("x", MFD_CLOEXEC), rc, run;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	flow_min = 0;
	rc = flow_open(path, &f);
	for (run = 0; run < 2 && !rc; run++) {
		struct flow_seen seen = { .r = r, .order = run ? order : NULL, .n = n };

		rc = flow_run(f, &sink, &seen);
		if (rc && run)
			fuzz_broken("a second run ends with %d", rc);
		if (rc)
			break;
		mine = flow_info(f);
		/* Of an event that is cut off, only the other reader takes the first half. */
		if (!r && !mine->ended)
			break;
		if (!r)
			fuzz_broken("taken as a large file, and refused as a small one: %s", why);
		if (seen.ops != n || mine->nops != r->nops ||
		    (mine->ended && mine->nvars != r->nvars) ||
		    mine->naccesses != r->naccesses || mine->nnodes != seen.nodes ||
		    mine->nwaits != r->nwaits || mine->nwaits != seen.waits ||
		    mine->foreign != r->foreign || mine->threads != r->threads ||
		    mine->length != r->length || mine->lost != r->lost || mine->whole != r->whole)
			fuzz_broken("large: %zu of %zu ops, %zu of %zu vars, %zu of %zu waits, "
				    "%lu of %lu others", seen.ops, n, mine->nvars, r->nvars, seen.waits,
				    r->nwaits, (unsigned long)mine->foreign, (unsigned long)r->foreign);
		flowed += run;
	}
	if (f)
		flow_close(f);
	close(fd);
}

static void replay(const struct recording *r, const uint32_t *order, size_t n, int kind)
{
	struct replay_options opt = { .kind = kind, .workers = 0 };
	struct replay_result res;
	char err[256] = "";
	size_t i;
	int rc;

	for (i = 0; i < r->nops; i++)
		if (r->ops[i].device >= 64 || r->ops[i].naccesses > 512)
			return;
	if (n > 300 || r->nvars > 1000)
		return;
	rc = replay_run(r, order, n, &opt, &res, err, sizeof(err));
	if (rc || res.wrong || res.ops != n)
		fuzz_broken("replay: %d %s, %lu wrong: %s", rc, err, (unsigned long)res.wrong, res.first);
	replayed++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct recording r;
	uint8_t *copy;
	uint32_t *order;
	char err[512] = "";
	size_t n;
	int rc;

	fuzz_data = data;
	fuzz_size = size;
	if (!size)
		return 0;
	copy = malloc(size);
	if (!copy)
		abort();
	memcpy(copy, data + 1, size - 1);
	if (data[0])
		seal(copy, size - 1);
	rc = rec_parse("x.pwr", copy, size - 1, &r, err, sizeof(err));
	if (rc) {
		flow(copy, size - 1, err, NULL, NULL, 0);
		free(copy);
		if (rc > 0 || strncmp(err, "x.pwr: ", 7) || strlen(err) < 10 || r.ops || r.data[0])
			fuzz_broken("refused with %d, \"%s\"", rc, err);
		fuzz_say("%s\n", err);
		refused++;
		return 0;
	}
	accepted++;
	check(&r);
	order = calloc(r.nops + 1, sizeof(*order));
	if (!order)
		abort();
	rc = rec_order(&r, order, &n, err, sizeof(err));
	if (rc) {
		if (rc != -EBADMSG || strlen(err) < 10)
			fuzz_broken("no order: %d, \"%s\"", rc, err);
		fuzz_say("%s\n", err);
		no_order++;
		flow(copy, size - 1, err, NULL, NULL, 0);
	} else {
		flow(copy, size - 1, "", &r, order, n);
		check_order(&r, order, n);
		replay(&r, order, n, data[0] % 3);
	}
	free(copy);
	free(order);
	rec_free(&r);
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "accepted=%lu refused=%lu no_order=%lu replayed=%lu large=%lu", accepted,
		 refused, no_order, replayed, flowed);
}
