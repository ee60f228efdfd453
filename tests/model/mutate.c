// SPDX-License-Identifier: Apache-2.0
/*
 * Checks that the model finds weakened orders and planted bugs.  Each access of the library
 * that has an order is weakened in turn, at run time: acquire and release to relaxed, acq_rel
 * to either half, seq_cst to acq_rel, a fence removed.  Scenarios run with it, in random
 * schedules on weak memory, until one fails.  A mutant that no scenario finds needs a reason in
 * mutants.list, or shows that the order is not needed or that a scenario is missing.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <base/bug.h>
#include "rt.h"

#define TRIALS_MAX	1024u

extern struct model_site __start_model_sites[], __stop_model_sites[];

struct trial {
	char name[120];
	u32 group;		/* its first site, or the planted bug */
	u8 order, fail;
	u32 killed;		/* the number of the scenario that found it, plus 1 */
	u32 reached;		/* scenarios that executed it */
	u64 odd;		/* loads that could return a value that the order forbids */
	char how[160];
};

struct shared {
	u32 n;
	struct trial t[TRIALS_MAX];
};

static struct shared *sh;
static struct model_site **sites;
static u32 nsites;

const char *trials_only, *trials_in;	/* only mutants whose name contains this; only this
					   scenario */

static const char *const kinds[] = { "load", "store", "xchg", "add", "or", "and", "cas",
				     "pair_cas", "fence" };

/* folder/file.c, independent of the location of the sources */
static const char *short_file(const char *f)
{
	const char *p = f + strlen(f), *q = f;
	int slashes = 0;

	while (p > f && slashes < 2)
		if (*--p == '/')
			slashes++;
	q = slashes == 2 ? p + 1 : f;
	return q;
}

static bool of_library(const struct model_site *s)
{
	const char *f = short_file(s->file);

	return !strncmp(f, "core/", 5) || !strncmp(f, "exec/", 5) || !strncmp(f, "pool/", 5) ||
	       !strncmp(f, "device/", 7) || !strncmp(f, "include/ck_", 11);
}

static int site_cmp(const void *x, const void *y)
{
	const struct model_site *a = *(struct model_site *const *)x,
				*b = *(struct model_site *const *)y;
	int c = strcmp(short_file(a->file), short_file(b->file));

	if (!c)
		c = a->line < b->line ? -1 : a->line > b->line;
	return c ? c : (int)a->kind - (int)b->kind;
}

static bool same_site(const struct model_site *a, const struct model_site *b)
{
	return a->line == b->line && a->kind == b->kind &&
	       !strcmp(short_file(a->file), short_file(b->file));
}

static void collect(void)
{
	struct model_site *s;

	sites = calloc((size_t)(__stop_model_sites - __start_model_sites) + 1, sizeof(*sites));
	for (s = __start_model_sites; s < __stop_model_sites; s++)
		if (of_library(s))
			sites[nsites++] = s;
	qsort(sites, nsites, sizeof(*sites), site_cmp);
}

static void add(u32 group, u32 nth, u8 order, u8 fail, const char *what)
{
	struct trial *t = &sh->t[sh->n];
	const struct model_site *s = sites[group];

	if (sh->n == TRIALS_MAX)
		return;
	snprintf(t->name, sizeof(t->name), "%s %s %s.%u %s", short_file(s->file), s->func,
		 kinds[s->kind], nth, what);
	t->group = group;
	t->order = order;
	t->fail = fail;
	sh->n++;
}

static void mutants_of(u32 g, u32 nth)
{
	const struct model_site *s = sites[g];
	u8 o = s->order, f = s->fail;

	if (s->kind == MODEL_FENCE) {
		add(g, nth, 0, 0, "removed");
		return;
	}
	if (o == MODEL_SEQ_CST)
		add(g, nth, s->kind == MODEL_LOAD ? MODEL_ACQUIRE : MODEL_ACQ_REL,
		    f == MODEL_SEQ_CST ? MODEL_ACQUIRE : f, "seq_cst weakened");
	if (o == MODEL_ACQUIRE || o == MODEL_ACQ_REL)
		add(g, nth, o & ~MODEL_ACQUIRE, f, "acquire dropped");
	if (o == MODEL_RELEASE || o == MODEL_ACQ_REL)
		add(g, nth, o & ~MODEL_RELEASE, f, "release dropped");
	if ((s->kind == MODEL_CAS || s->kind == MODEL_PAIR_CAS) && f == MODEL_ACQUIRE)
		add(g, nth, o, MODEL_RELAXED, "acquire on failure dropped");
}

static void mutants(void)
{
	u32 i, j, nth;

	for (i = 0; i < nsites; i = j) {
		for (j = i + 1; j < nsites && same_site(sites[i], sites[j]); j++)
			;
		/* The number of the access among its kind in its function. */
		for (nth = 1, j = i; j-- && !strcmp(sites[j]->func, sites[i]->func) &&
		     !strcmp(short_file(sites[j]->file), short_file(sites[i]->file)); )
			nth += sites[j]->kind == sites[i]->kind &&
			       !same_site(sites[j], sites[j + 1]) &&
			       !same_site(sites[j], sites[i]);
		for (j = i + 1; j < nsites && same_site(sites[i], sites[j]); j++)
			;
		mutants_of(i, nth);
	}
}

static void apply(const struct trial *t, bool on, struct model_site *was)
{
	u32 i;

	for (i = t->group; i < nsites && same_site(sites[i], sites[t->group]); i++) {
		if (on) {
			*was = *sites[i];
			sites[i]->strong = (u8)(0x80 | was->order | was->fail << 3);
			sites[i]->order = t->order;
			sites[i]->fail = t->fail;
		} else {
			sites[i]->order = was->order;
			sites[i]->fail = was->fail;
			sites[i]->strong = 0;
		}
	}
	weak_mutant = on;
}

static u64 hits(const struct trial *t)
{
	u64 n = 0;
	u32 i;

	for (i = t->group; i < nsites && same_site(sites[i], sites[t->group]); i++)
		n += sites[i]->hits;
	return n;
}

/* --- a list from an earlier run ------------------------------------------------- */

/*
 * scenario <tab> mutant: found there, program/scenario; "-" <tab> mutant <tab> reason; "!"
 * <tab> mutant: neither found nor explained.
 */
struct line {
	char scenario[60], name[120];
	char how;		/* first character */
	bool other;		/* found in another program */
};

static struct line *lines;
static u32 nlines;

static void read_list(const char *path)
{
	const char *me = program_name() + strlen("model_");
	size_t len = strlen(me);
	char buf[400];
	FILE *f = fopen(path, "r");

	lines = calloc(TRIALS_MAX, sizeof(*lines));
	if (!f || !lines) {
		perror(path);
		exit(2);
	}
	while (nlines < TRIALS_MAX && fgets(buf, sizeof(buf), f)) {
		char *tab = strchr(buf, '\t'), *end;

		if (buf[0] == '#' || !tab)
			continue;
		*tab = 0;
		end = tab + 1 + strcspn(tab + 1, "\t\n");
		*end = 0;
		if (tab - buf >= (int)sizeof(lines->scenario) ||
		    end - tab > (int)sizeof(lines->name))
			continue;
		strcpy(lines[nlines].scenario, buf);
		strcpy(lines[nlines].name, tab + 1);
		lines[nlines].how = buf[0];
		if (strchr(buf, '/')) {
			lines[nlines].other = strncmp(buf, me, len) || buf[len] != '/';
			memmove(lines[nlines].scenario, strchr(buf, '/') + 1,
				strlen(strchr(buf, '/')));
		}
		nlines++;
	}
	fclose(f);
}

static const struct line *listed(const char *name)
{
	u32 i;

	for (i = 0; i < nlines; i++)
		if (!strcmp(lines[i].name, name))
			return &lines[i];
	return NULL;
}

/* There is a list, which contains nothing of this scenario. */
static bool nothing_listed(const char *scenario)
{
	u32 i;

	for (i = 0; i < nlines; i++)
		if (!lines[i].other && !strcmp(lines[i].scenario, scenario))
			return false;
	return nlines;
}

/* --- runs --------------------------------------------------------------------------- */

static void one_scenario(const struct scenario *s, u32 k, u64 most, double seconds,
			 bool planted, double until)
{
	struct model_site was = { 0 };
	u32 j;

	if (nothing_listed(s->name))
		return;
	/* On a busy machine a mutant runs as often as on an idle one. */
	cpu_time = true;
	until += now();
	weak = true;
	catch_faults();
	scenario_setup(s);
	if (!planted) {
		run_quiet("random", seconds, 200);
		if (failed) {
			printf("    %s fails without any mutant: %s\n", s->name, failed);
			return;
		}
	}
	for (j = 0; j < sh->n; j++) {
		/* If the time is short, the last ones should not always be the same. */
		struct trial *t = &sh->t[(j + k * 37) % sh->n];
		const struct line *l = listed(t->name);
		bool dead;

		/* A listed mutant is tried also if those few runs did not come to it. */
		if (t->killed || (!planted && !nlines && !hits(t)) ||
		    (trials_only && !strstr(t->name, trials_only)))
			continue;
		if (now() > until)
			break;
		if (nlines && (!l || l->other || strcmp(l->scenario, s->name)))
			continue;
		t->reached++;
		if (planted) {
			pawl_busted = t->group;
			weak = false;
			dead = !run_quiet("search", seconds, most);
			weak = true;
			if (!dead)
				dead = !run_quiet("random", seconds, most);
			pawl_busted = 0;
		} else {
			apply(t, true, &was);
			weak_odd = 0;
			dead = !run_quiet("random", seconds, most);
			apply(t, false, &was);
			__atomic_fetch_add(&t->odd, weak_odd, __ATOMIC_RELAXED);
		}
		if (dead) {
			snprintf(t->how, sizeof(t->how), "%s", failed);
			t->killed = k + 1;
		}
	}
}

static int trial_cmp(const void *x, const void *y)
{
	return strcmp(((const struct trial *)x)->name, ((const struct trial *)y)->name);
}

int run_trials(bool planted, const char *list, u32 jobs, u64 most, double seconds, double total)
{
	const struct scenario *s;
	u32 running = 0, i, killed = 0, unreached = 0, reasons = 0, missed = 0, open = 0,
	    unlisted = 0, n = 0, count = 0;
	double start = now();

	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		return 2;
	collect();
	if (planted) {
		for (i = 1; i < BUSTED_COUNT; i++) {
			snprintf(sh->t[sh->n].name, sizeof(sh->t[0].name), "%s",
				 busted_name(i));
			sh->t[sh->n++].group = i;
		}
	} else {
		mutants();
	}
	if (list)
		read_list(list);
	for (s = scenarios; s->name; s++)
		count++;
	for (s = scenarios; s->name; s++) {
		if (running == jobs) {
			wait(NULL);
			running--;
		}
		if (trials_in && strcmp(s->name, trials_in))
			continue;
		if (!fork()) {
			/* Each scenario receives an equal share of the time. */
			one_scenario(s, (u32)(s - scenarios), most, seconds, planted,
				     total * jobs / count);
			exit(0);
		}
		running++;
	}
	while (wait(NULL) > 0)
		;
	qsort(sh->t, sh->n, sizeof(sh->t[0]), trial_cmp);
	for (i = 0; i < sh->n; i++) {
		struct trial *t = &sh->t[i];
		const struct line *l = listed(t->name);

		if (trials_only && !strstr(t->name, trials_only))
			continue;
		n++;
		if (t->killed) {
			killed++;
			if (!list)
				printf("%s/%s\t%s\t%s\n", program_name() + strlen("model_"),
				       scenarios[t->killed - 1].name, t->name, t->how);
		} else if (l && l->how == '-') {
			reasons++;
		} else if (l && l->how == '!') {
			open++;
		} else if (l && l->other) {
			n--;
		} else if (l) {
			missed++;
			printf("    not found any more: %s, by %s\n", t->name, l->scenario);
		} else if (list && planted) {
			n--;	/* not for the model: tests/busted */
		} else if (list) {
			unlisted++;
			printf("    not in the list: %s\n", t->name);
		} else if (!t->reached) {
			unreached++;
			printf("?\t%s\tnot reached\n", t->name);
		} else {
			open++;
			printf("!\t%s\tsurvives in %u scenarios, %llu odd loads\n", t->name,
			       t->reached, (unsigned long long)t->odd);
		}
	}
	printf("%s %s: %s=%u found=%u", planted ? "C17" : "C06", program_name(),
	       planted ? "planted" : "mutants", n, killed);
	if (!planted && list)
		printf(" explained=%u open=%u unlisted=%u", reasons, open, unlisted);
	else if (!planted)
		printf(" not_reached=%u open=%u", unreached, open);
	printf(" %.0fs %s\n", now() - start, missed + unlisted ? "FAIL" : "PASS");
	return missed + unlisted != 0;
}
