// SPDX-License-Identifier: Apache-2.0
/*
 * Which accesses moved lines: counted by line and place in the sources, and told with the names of
 * the objects and the lines of the sources.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <base/atomic_model.h>
#include "rows.h"
#include "sim.h"

#define COUNTS		(1u << 18)
#define NAMES		65536u

/* Accesses of one place in the sources to one line that moved it. */
struct count {
	u64 line, site;		/* site: struct model_site, or 1 | return address */
	u64 moves, wait;
};

struct name {
	const char *name;
	u64 from, to, size;
};

static struct count counts[COUNTS];
static struct name names[NAMES];
static u32 nnames, ncounts;

void sim_name(const char *name, const void *from, u64 bytes, u64 size)
{
	if (nnames == NAMES)
		sim_die("too many objects");
	names[nnames++] = (struct name){ name, (u64)(uintptr_t)from, (u64)(uintptr_t)from + bytes,
					 size };
}

void rows_note(u64 line, u64 site, u64 wait)
{
	u64 i = hash(line ^ site << 20) & (COUNTS - 1);

	while (counts[i].line && (counts[i].line != line || counts[i].site != site))
		i = (i + 1) & (COUNTS - 1);
	if (!counts[i].line) {
		/* The table shows the most frequent ones; later ones are only in the sum. */
		if (ncounts > COUNTS / 4 * 3)
			return;
		ncounts++;
		counts[i].line = line;
		counts[i].site = site;
	}
	counts[i].moves++;
	counts[i].wait += wait;
}

void rows_reset(void)
{
	memset(counts, 0, sizeof(counts));
	ncounts = 0;
}

static const struct name *name_of(u64 addr)
{
	u32 i;

	/* The last one that covers it is the most exact one. */
	for (i = nnames; i--;)
		if (addr - names[i].from < names[i].to - names[i].from)
			return &names[i];
	return NULL;
}

/* The line of the source, without its indentation. */
static void source(const char *file, u32 number, char *to, size_t room)
{
	FILE *f = fopen(file, "r");
	char text[512];

	to[0] = 0;
	while (f && number && fgets(text, sizeof(text), f))
		number--;
	if (f && !number) {
		text[strcspn(text, "\n")] = 0;
		snprintf(to, room, "%.*s", (int)room - 1, text + strspn(text, " \t"));
	}
	if (f)
		fclose(f);
}

static const char *tail(const char *file)
{
	const char *p = strrchr(file, '/');

	while (p > file && p[-1] != '/')
		p--;
	return p && p > file ? p : file;
}

/* Ask addr2line where the instruction before the return address is. */
static void locate(u64 pc, struct sim_row *row)
{
	static struct { u64 pc; char where[64], text[80]; } known[4096];
	u32 slot = (u32)(hash(pc) % ARRAY_SIZE(known));
	char cmd[256], func[128] = "?", where[512] = "?:0";
	FILE *f;

	if (known[slot].pc == pc) {
		memcpy(row->where, known[slot].where, sizeof(row->where));
		memcpy(row->text, known[slot].text, sizeof(row->text));
		return;
	}

	snprintf(cmd, sizeof(cmd), "addr2line -i -f -e /proc/%d/exe %#" PRIx64, (int)getpid(),
		 (uint64_t)(pc & ~1ull) - 1);
	f = popen(cmd, "r");
	if (f) {
		if (!fgets(func, sizeof(func), f) || !fgets(where, sizeof(where), f))
			where[0] = 0;
		pclose(f);
	}
	func[strcspn(func, "\n")] = 0;
	where[strcspn(where, " \n")] = 0;
	snprintf(row->where, sizeof(row->where), "%s, %s", func, tail(where));
	if (strrchr(where, ':')) {
		u32 n = (u32)strtoul(strrchr(where, ':') + 1, NULL, 10);

		*strrchr(where, ':') = 0;
		source(where, n, row->text, sizeof(row->text));
	}
	known[slot].pc = pc;
	memcpy(known[slot].where, row->where, sizeof(row->where));
	memcpy(known[slot].text, row->text, sizeof(row->text));
}

struct group {
	u64 object, offset, size, site, moves, wait;
};

static int by_key(const void *a, const void *b)
{
	return memcmp(a, b, offsetof(struct group, moves));
}

static int by_moves(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	return x->moves != y->moves ? (x->moves < y->moves ? 1 : -1) : by_key(a, b);
}

u32 sim_rows(struct sim_row *rows, u32 most, bool only_watched)
{
	struct group *g = calloc(ncounts + 1, sizeof(*g));
	u32 i, n = 0, k = 0;

	if (!g)
		sim_die("no memory");
	for (i = 0; i < COUNTS; i++) {
		const struct count *c = &counts[i];
		const struct name *o;

		if (!c->line || (only_watched && !sim_contested(c->line)))
			continue;
		o = name_of(c->line);
		if (o) {
			g[n].object = (u64)(uintptr_t)o->name;
			g[n].size = o->size;
			g[n].offset = (c->line - o->from) % o->size;
			/* Where objects are larger than a line, all lines are told apart. */
			if (o->size < 64)
				g[n].offset = 0;
		} else {
			g[n].offset = c->line;
		}
		g[n].site = c->site;
		g[n].moves = c->moves;
		g[n++].wait = c->wait;
	}
	qsort(g, n, sizeof(*g), by_key);
	for (i = 0; i < n; i++) {
		if (k && !by_key(&g[k - 1], &g[i])) {
			g[k - 1].moves += g[i].moves;
			g[k - 1].wait += g[i].wait;
		} else {
			g[k++] = g[i];
		}
	}
	qsort(g, k, sizeof(*g), by_moves);
	n = (u32)min_u(k, most);
	for (i = 0; i < n; i++) {
		const struct model_site *s = (const struct model_site *)(uintptr_t)g[i].site;

		memset(&rows[i], 0, sizeof(rows[i]));
		rows[i].transfers = g[i].moves;
		rows[i].wait_ns = g[i].wait;
		snprintf(rows[i].object, sizeof(rows[i].object), "%s+%" PRIu64,
			 g[i].object ? (const char *)(uintptr_t)g[i].object : "static", g[i].offset);
		if (g[i].site & 1) {
			locate(g[i].site, &rows[i]);
			continue;
		}
		snprintf(rows[i].where, sizeof(rows[i].where), "%s, %s:%u", s->func, tail(s->file),
			 s->line);
		source(s->file, s->line, rows[i].text, sizeof(rows[i].text));
	}
	free(g);
	return n;
}
