// SPDX-License-Identifier: Apache-2.0
/*
 * See step.h.  x86-64 and Linux; elsewhere the programs are skipped.
 */
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "step.h"

#define TRAP_FLAG	0x100
#define LABELS_MAX	4096u

struct found *found;
struct victim victims[VICTIMS];
struct other others[OTHERS];
u64 step_seed = 1;
u32 stall_ms;
const char *step_what = "";
void (*step_says)(void);
bool step_anywhere, step_convict;

static __thread struct victim *me;

/* --- futexes --- */

void futex_wait_ms(u32 *word, u32 old, u64 ms)
{
	struct timespec ts = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
	u32 i;

	for (i = 0; i < 64; i++) {
		if (load_acquire(word) != old)
			return;
		cpu_relax();
	}
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, &ts, NULL, 0);
}

void futex_wake(u32 *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 64, NULL, NULL, 0);
}

/* --- the code under test --- */

/* Defined by the linker: the sections to which the library's code was moved. */
extern char __start_pawl_text[], __stop_pawl_text[];
/* Not every compiler has a separate section for cold code. */
extern char __start_pawl_text_cold[] __attribute__((weak));
extern char __stop_pawl_text_cold[] __attribute__((weak));
extern char __executable_start[], etext[];

static u64 text, text_end, cold, cold_end;
static u8 *insn;			/* for each byte: an instruction begins there */
static struct { u64 at; char name[48]; } label[LABELS_MAX];
static u32 labels;

static bool under_test(u64 a)
{
	return (a >= text && a < text_end) || (a >= cold && a < cold_end);
}

/* The offset in both sections together. */
static u64 map_at(u64 a)
{
	return a >= text && a < text_end ? a - text : text_end - text + a - cold;
}

static u64 code_of(u64 i)
{
	return i < text_end - text ? text + i : cold + i - (text_end - text);
}

static u64 map_size(void)
{
	return text_end - text + cold_end - cold;
}

static u8 *map_run(void)
{
	return found->maps;
}

static u8 *map_parked(void)
{
	return found->maps + map_size();
}

bool code_at(u64 a)
{
	return under_test(a) && insn[map_at(a)];
}

const char *code_name(u64 a)
{
	static char text_of[64];
	u32 i, best = LABELS_MAX;

	for (i = 0; i < labels; i++)
		if (label[i].at <= a && (best == LABELS_MAX || label[i].at > label[best].at))
			best = i;
	if (!under_test(a) || best == LABELS_MAX)
		return "outside the library";
	snprintf(text_of, sizeof(text_of), "%s+%#llx", label[best].name,
		 (unsigned long long)(a - label[best].at));
	return text_of;
}

/* Lines of objdump: "  1a2b:<tab>mov ..." and "0000000000001a2b <name>:". */
static void code_line(const char *line, u64 base)
{
	unsigned long long a;
	char name[48];

	if (sscanf(line, "%llx <%47[^>]>:", &a, name) == 2) {
		if (labels < LABELS_MAX && under_test(a + base)) {
			label[labels].at = a + base;
			memcpy(label[labels++].name, name, sizeof(name));
		}
		return;
	}
	if (sscanf(line, " %llx:", &a) == 1 && strchr(line, '\t') && under_test(a + base))
		insn[map_at(a + base)] = 1;
}

int code_init(const char *program)
{
	char line[512], path[300], cmd[600];
	u64 n = 0, i, base;
	FILE *f;

	text = (u64)(uintptr_t)__start_pawl_text;
	text_end = (u64)(uintptr_t)__stop_pawl_text;
	cold = (u64)(uintptr_t)__start_pawl_text_cold;
	cold_end = (u64)(uintptr_t)__stop_pawl_text_cold;
	insn = calloc(map_size(), 1);
	MUST(insn);
	found = mmap(NULL, sizeof(*found) + 2 * map_size(), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(found != MAP_FAILED);
	if (!program)
		return 0;
	i = (u64)readlink("/proc/self/exe", path, sizeof(path) - 1);
	if (i >= sizeof(path) - 1) {
		printf("no /proc/self/exe\n");
		return 77;
	}
	path[i] = 0;
	/* In a position-independent executable objdump's addresses begin at 0. */
	base = (u64)(uintptr_t)__executable_start;
	snprintf(cmd, sizeof(cmd), "objdump -d --no-show-raw-insn -j pawl_text -j pawl_text_cold '%s'",
		 path);
	f = popen(cmd, "r");
	while (f && fgets(line, sizeof(line), f))
		code_line(line, base);
	if (f)
		pclose(f);
	for (i = 0; i < map_size(); i++)
		n += insn[i];
	if (n < 1000) {
		printf("objdump does not show the library's code\n");
		return 77;
	}
	return 0;
}

/* --- breakpoints --- */

static u8 *code_saved;
static u32 code_recording;		/* A */
static u64 breakpoint;			/* A: address, or 0 */
static __thread u64 stepping_over;

static void byte_set(u64 a, u8 b)
{
	store_release((u8 *)(uintptr_t)a, b);
}

static void code_writable(u64 from, u64 to)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE);

	from &= ~(page - 1);
	MUST(!mprotect((void *)(uintptr_t)from, to - from, PROT_READ | PROT_WRITE | PROT_EXEC));
}

static void code_save(void)
{
	u64 i;

	if (code_saved)
		return;
	code_saved = malloc(map_size());
	MUST(code_saved);
	code_writable(text, text_end);
	if (cold)
		code_writable(cold, cold_end);
	for (i = 0; i < map_size(); i++)
		code_saved[i] = *(u8 *)(uintptr_t)code_of(i);
}

/*
 * This is safe while threads run, because one byte changes and each instruction has its own
 * first byte.  When off, all original bytes are restored, since a thread that starts may block
 * all signals for some time.
 */
void code_break(bool on)
{
	u64 i;

	code_save();
	store_release(&code_recording, on);
	for (i = 0; i < map_size(); i++)
		if (insn[i])
			byte_set(code_of(i), on ? 0xcc : code_saved[i]);
}

void breakpoint_set(u64 a)
{
	code_save();
	store_release(&breakpoint, a);
	byte_set(a, 0xcc);
}

void breakpoint_clear(void)
{
	u64 a = xchg_acq_rel(&breakpoint, 0);

	if (a)
		byte_set(a, code_saved[map_at(a)]);
}

void trace_clear(struct trace *t)
{
	if (!t->seen)
		t->seen = malloc(map_size());
	MUST(t->seen);
	memset(t->seen, 0, map_size());
	t->n = 0;
}

static void trace_add(struct trace *t, u64 a)
{
	if (!under_test(a) || t->seen[map_at(a)] || t->n == ARRAY_SIZE(t->at))
		return;
	t->seen[map_at(a)] = 1;
	t->at[t->n++] = a;
}

void code_figures(u64 *run, u64 *both)
{
	u64 i;

	*run = *both = 0;
	for (i = 0; i < map_size(); i++) {
		*run += map_run()[i];
		*both += map_run()[i] && map_parked()[i];
	}
}

/* The instructions that were executed, beginning with those at which no thread was parked. */
u64 *code_hot(u64 *n)
{
	u64 *list = calloc(map_size(), sizeof(*list)), i;
	u32 pass;

	MUST(list);
	for (*n = pass = 0; pass < 2; pass++)
		for (i = 0; i < map_size(); i++)
			if (map_run()[i] && map_parked()[i] == pass)
				list[(*n)++] = code_of(i);
	return list;
}

bool code_parked(u64 a)
{
	return map_parked()[map_at(a)];
}

void code_missing(u32 most)
{
	u64 i, from = 0, n = 0;

	for (i = 0; i < map_size() && most; i++) {
		u64 a = code_of(i);

		if (!map_run()[i])
			continue;
		if (!map_parked()[i]) {
			if (!n++)
				from = a;
			continue;
		}
		if (n) {
			printf("    never parked at %s and %llu more\n", code_name(from),
			       (unsigned long long)n - 1);
			most--;
		}
		n = 0;
	}
}

/* Compilers add a dot and more to the names of parts that they split off. */
static bool name_is(const char *name, const char *function, char end)
{
	size_t n = strlen(function);

	return !strncmp(name, function, n) && (name[n] == end || name[n] == '.');
}

bool trace_passes(const struct trace *t, const char *function)
{
	u32 i;

	for (i = 0; i < t->n; i++)
		if (name_is(code_name(t->at[i]), function, '+'))
			return true;
	return false;
}

bool code_enters(u64 a, const char *prefix)
{
	u32 i;

	for (i = 0; i < labels; i++)
		if (label[i].at == a && !strncmp(label[i].name, prefix, strlen(prefix)))
			return true;
	return false;
}

static bool parked_in(u32 k)
{
	u64 a = label[k].at, end = a < text_end && a >= text ? text_end : cold_end;
	u32 i;

	for (i = 0; i < labels; i++)
		if (label[i].at > a && label[i].at < end)
			end = label[i].at;
	for (; a < end; a++)
		if (map_parked()[map_at(a)])
			return true;
	return false;
}

const char *code_function(u32 *i, const char *prefix, bool *stopped_in)
{
	for (; *i < labels; ++*i) {
		const char *name = label[*i].name;

		if (strncmp(name, prefix, strlen(prefix)) || strchr(name, '.'))
			continue;
		*stopped_in = parked_in((*i)++);
		return name;
	}
	return NULL;
}

/* --- victims --- */

static u32 any_event;			/* A, futex: counts all parks */

/* Park the thread until it is released. */
static void park(struct victim *v, u64 at)
{
	u32 r = load_acquire(&v->released);

	if (under_test(at))
		map_parked()[map_at(at)] = 1;
	v->at = at;
	store_release(&v->parked, 1);
	fetch_add_seq_cst(&v->event, 1);
	futex_wake(&v->event);
	fetch_add_seq_cst(&any_event, 1);
	futex_wake(&any_event);
	while (load_acquire(&v->released) == r)
		futex_wait_ms(&v->released, r, 1000);
}

/* A breakpoint, to park or to record.  Its original byte may have been restored meanwhile. */
static void on_break(ucontext_t *uc)
{
	u64 a = (u64)uc->uc_mcontext.gregs[REG_RIP] - 1;
	struct victim *v = me;

	if (!code_at(a))
		abort();
	byte_set(a, code_saved[map_at(a)]);
	uc->uc_mcontext.gregs[REG_RIP] = (long long)a;
	if (load_acquire(&code_recording)) {
		map_run()[map_at(a)] = 1;
		return;
	}
	if (a != load_acquire(&breakpoint))
		return;
	if (v && v->on && !v->crawl && v->skip) {
		v->skip--;
	} else if (v && v->on && !v->crawl) {
		u64 want = a;

		/* Only one thread is parked; the others continue. */
		if (!cas_acq_rel_acquire(&breakpoint, &want, 0))
			return;
		v->on = false;
		park(v, a);
		/* The victim continues, and is stopped again soon. */
		if (v->on && v->crawl)
			uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
		return;
	}
	/* The breakpoint is not for this thread: step over it, then set it again. */
	stepping_over = a;
	uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_step(ucontext_t *uc)
{
	u64 at = (u64)uc->uc_mcontext.gregs[REG_RIP];
	struct victim *v = me;

	if (stepping_over) {
		if (load_acquire(&breakpoint) == stepping_over)
			byte_set(stepping_over, 0xcc);
		stepping_over = 0;
	}
	if (!v || !v->on || !v->crawl) {
		uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
		return;
	}
	/* This is the test's own code: bodies, and the code around the call. */
	if (at >= (u64)(uintptr_t)__executable_start && at < (u64)(uintptr_t)etext && !under_test(at) &&
	    !step_anywhere)
		return;
	v->steps++;
	if (v->trace)
		trace_add(v->trace, at);
	if (v->left) {
		v->left--;
		return;
	}
	if (!v->every) {
		v->on = false;
		uc->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
	}
	park(v, at);
}

static void on_trap(int sig, siginfo_t *si, void *context)
{
	int saved = errno;

	if (si->si_code == TRAP_TRACE)
		on_step(context);
	else
		on_break(context);
	errno = saved;
}

static void on_interrupt(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	int saved = errno;

	if (me)
		park(me, (u64)uc->uc_mcontext.gregs[REG_RIP]);
	errno = saved;
}

void step_init(void)
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };

	sigfillset(&sa.sa_mask);
	MUST(!sigaction(SIGTRAP, &sa, NULL));
	sa.sa_sigaction = on_interrupt;
	sa.sa_flags = SA_SIGINFO | SA_RESTART;
	MUST(!sigaction(SIGUSR2, &sa, NULL));
}

/* Workers block all signals. */
void step_unblock(void)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, SIGTRAP);
	MUST(!pthread_sigmask(SIG_UNBLOCK, &s, NULL));
}

void step_me(struct victim *v)
{
	me = v;
}

__attribute__((noinline)) void step_begin(struct victim *v)
{
	v->steps = 0;
	v->on = true;
	if (!v->crawl)
		return;
	/* Skip the red zone below the stack pointer. */
	__asm__ __volatile__("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\t"
			     "lea 128(%%rsp), %%rsp" : : "i"(TRAP_FLAG) : "memory", "cc");
}

__attribute__((noinline)) void step_end(struct victim *v)
{
	v->on = false;
}

static void *victim_main(void *arg)
{
	struct victim *v = arg;
	u32 job = 0;

	me = v;
	for (;;) {
		while (load_acquire(&v->job) == job)
			futex_wait_ms(&v->job, job, 1000);
		job = load_acquire(&v->job);
		if (!v->fn)
			break;
		v->fn(v);
		v->on = false;
		store_release(&v->done, job);
		fetch_add_seq_cst(&v->event, 1);
		futex_wake(&v->event);
	}
	return NULL;
}

void victims_start(u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		memset(&victims[i], 0, sizeof(victims[i]));
		victims[i].id = i;
		victims[i].seed = step_seed * 1000 + i;
		victims[i].thread = spawn(victim_main, &victims[i]);
	}
}

void victim_job(struct victim *v, void (*fn)(struct victim *v))
{
	v->fn = fn;
	fetch_add_relaxed(&found->jobs, 1);
	store_release(&v->job, v->job + 1);
	futex_wake(&v->job);
}

void victims_stop(u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		victim_job(&victims[i], NULL);
		join(victims[i].thread);
	}
}

/* Like victim_wait(), with a timeout.  Returns false also after the timeout. */
bool victim_wait_ms(struct victim *v, u64 ms)
{
	u64 end = now_ms() + ms;

	for (;;) {
		u32 e = load_acquire(&v->event);

		if (load_acquire(&v->parked))
			return true;
		if (v->job && load_acquire(&v->done) == v->job)
			return false;
		if (now_ms() >= end)
			return false;
		futex_wait_ms(&v->event, e, ms < 100 ? ms : 100);
	}
}

/* Wait until any of the first n is parked. */
struct victim *victims_wait_ms(u32 n, u64 ms)
{
	u64 end = now_ms() + ms;
	u32 e, i;

	for (;;) {
		e = load_acquire(&any_event);
		for (i = 0; i < n; i++)
			if (load_acquire(&victims[i].parked))
				return &victims[i];
		if (now_ms() >= end)
			return NULL;
		futex_wait_ms(&any_event, e, ms);
	}
}

bool victim_wait(struct victim *v)
{
	for (;;) {
		if (victim_wait_ms(v, 10000))
			return true;
		if (load_acquire(&v->done) == v->job)
			return false;
		fprintf(stderr, "%s: the stepping thread itself does not come to its end\n", step_what);
	}
}

void victim_release(struct victim *v)
{
	store_release(&v->parked, 0);
	store_release(&v->released, v->released + 1);
	futex_wake(&v->released);
}

/* Let it continue to the end of its job. */
void victim_finish(struct victim *v)
{
	breakpoint_clear();
	v->every = false;
	v->left = ~0ull;
	/*
	 * It continues at full speed, whether it is parked or not: a crawling victim could be
	 * delayed forever by the others.
	 */
	v->on = false;
	do {
		if (load_acquire(&v->parked))
			victim_release(v);
	} while (victim_wait(v));
}

void victim_interrupt(struct victim *v)
{
	MUST(!pthread_kill(v->thread, SIGUSR2));
}

/* --- others --- */

static u32 ask;				/* A, futex */
static u32 busy;			/* A: rounds run without a request */
static u32 quit;			/* A */
static u32 asked;			/* A: a thread waits for rounds */
static u32 nothers;
static void (*others_round)(struct other *o);

static void *other_main(void *arg)
{
	struct other *o = arg;

	while (!load_acquire(&quit)) {
		u32 a = load_acquire(&ask);

		if (!load_acquire(&busy) && a == o->answered) {
			futex_wait_ms(&ask, a, 100);
			continue;
		}
		others_round(o);
		/* Yield, so that a stepping thread continues soon, also on one core. */
		sched_yield();
		o->answered = a;
		fetch_add_seq_cst(&o->rounds, 1);
		if (load_seq_cst(&asked))
			futex_wake(&o->rounds);
	}
	return NULL;
}

void others_start(u32 n, void (*round)(struct other *o))
{
	u32 i;

	store_release(&quit, 0);
	store_release(&busy, 0);
	nothers = n;
	others_round = round;
	for (i = 0; i < n; i++) {
		others[i].id = i;
		others[i].seed = step_seed * 77 + i;
		others[i].rounds = 0;
		others[i].answered = load_acquire(&ask);
		others[i].thread = spawn(other_main, &others[i]);
	}
}

void others_stop(void)
{
	u32 i;

	store_release(&quit, 1);
	fetch_add_seq_cst(&ask, 1);
	futex_wake(&ask);
	for (i = 0; i < nothers; i++) {
		join(others[i].thread);
		fetch_add_relaxed(&found->rounds, others[i].rounds);
	}
	nothers = 0;
}

void others_busy(bool all_the_time)
{
	store_release(&busy, all_the_time);
	fetch_add_seq_cst(&ask, 1);
	futex_wake(&ask);
}

static void stall(u64 at, u64 step, u32 who)
{
	char says[sizeof(found->first_stall)];

	if (step_convict) {
		fetch_add_relaxed(&found->convicted, 1);
		return;
	}

	snprintf(says, sizeof(says), "%s: thread %u made no progress while one was stopped at "
		 "instruction %llu, %s", step_what, who, (unsigned long long)step, code_name(at));
	fprintf(stderr, "    STALL %s\n", says);
	if (step_says)
		step_says();
	if (!fetch_add_relaxed(&found->stalls, 1))
		memcpy(found->first_stall, says, sizeof(says));
}

bool others_go(u64 at, u64 step)
{
	u32 base[OTHERS], more = load_acquire(&busy) ? 2 : 1, i;

	for (i = 0; i < nothers; i++)
		base[i] = load_acquire(&others[i].rounds);
	fetch_add_seq_cst(&asked, 1);
	fetch_add_seq_cst(&ask, 1);
	futex_wake(&ask);
	for (i = 0; i < nothers; i++) {
		u64 since = now_ms();
		u32 r, last = base[i], again = 0;

		while ((r = load_acquire(&others[i].rounds)) - base[i] < more) {
			if (r != last) {
				last = r;
				since = now_ms();
			}
			if (now_ms() - since > stall_ms) {
				/* The machine may be busy with other processes. */
				if (again++) {
					stall(at, step, i);
					fetch_add_seq_cst(&asked, -1u);
					return false;
				}
				since = now_ms();
			}
			futex_wait_ms(&others[i].rounds, r, 20);
		}
	}
	fetch_add_seq_cst(&asked, -1u);
	fetch_add_relaxed(&found->parks, 1);
	return true;
}

/* --- children --- */

/* Run fn in a child.  Returns 0, or nonzero if it failed. */
int child(void (*fn)(void *arg), void *arg, u32 seconds)
{
	u64 end = now_ms() + seconds * 1000ull;
	int status;
	pid_t p;

	fflush(NULL);
	p = fork();
	MUST(p >= 0);
	if (!p) {
		setvbuf(stdout, NULL, _IOLBF, 0);
		fn(arg);
		fflush(NULL);
		_exit(0);
	}
	while (waitpid(p, &status, WNOHANG) == 0) {
		if (now_ms() > end) {
			fprintf(stderr, "%s: no end after %u s\n", step_what, seconds);
			kill(p, SIGKILL);
			waitpid(p, &status, 0);
			return -ETIMEDOUT;
		}
		nap_us(2000);
	}
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	fprintf(stderr, "%s: the child ended with status %#x\n", step_what, (unsigned int)status);
	return -ECHILD;
}
