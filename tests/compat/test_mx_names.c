// SPDX-License-Identifier: Apache-2.0
/*
 * compat/error.c: each name of an op is kept once, whichever thread is the first to use it, and
 * only so many are.  The profiler's table has one row for each name that is kept.  Calls of
 * calloc() and free() go through this file (--wrap), so that another thread can be faster.
 */
#include "mx_profile.h"
#include <pthread.h>

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void __real_free(void *p);
void __wrap_free(void *p);

static __thread void (*meanwhile)(void);	/* called once, in this thread's next calloc() */
static __thread void *raced;			/* what that call returned */
static int freed;				/* how many of these were freed again */

void *__wrap_calloc(size_t n, size_t size)
{
	void (*fn)(void) = meanwhile;
	void *p = __real_calloc(n, size);

	if (fn) {
		meanwhile = NULL;
		raced = p;
		fn();
	}
	return p;
}

void __wrap_free(void *p)
{
	if (p && p == raced) {
		raced = NULL;
		freed++;
	}
	__real_free(p);
}

static void nothing(void *run, void *arg) { }

static void op(const char *name)
{
	OK(MXEnginePushSync(nothing, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, name));
}

/* How many rows of the table have that name, and the count of the first. */
static int rows(const char *name, int *count)
{
	char key[256];
	const char *text;
	int n = 0;

	*count = 0;
	OK(MXNDArrayWaitAll());
	OK(MXAggregateProfileStatsPrintEx(&text, 0, 1, 4, 1));
	snprintf(key, sizeof(key), "\"%s\": {\"Count\": ", name);
	while ((text = strstr(text, key))) {
		text += strlen(key);
		if (!n++)
			ck_assert_int_eq(sscanf(text, "%d", count), 1);
	}
	return n;
}

static void is_one(const char *name, int count)
{
	int n, counted;

	n = rows(name, &counted);
	ck_assert_msg(n == 1 && counted == count, "%s: %d rows, %d ops", name, n, counted);
}

static void begin(void)
{
	set_up("1");
	OK(MXSetProfilerState(1));
	op("so that this thread has what it needs");
}

static void end(void)
{
	const char *text;

	OK(MXSetProfilerState(0));
	OK(MXAggregateProfileStatsPrint(&text, 1));
	set_up("0");
}

static unsigned bucket(const char *s)
{
	unsigned hash = 2166136261u;

	for (; *s; s++)
		hash = (hash ^ (unsigned char)*s) * 16777619u;
	return hash % 1024;
}

/* Also if the table keeps them in one list. */
START_TEST(test_the_beginning_of_a_name_is_another_name)
{
	char longer[32];
	unsigned i = 0;

	do
		snprintf(longer, sizeof(longer), "beginning%u", i++);
	while (bucket(longer) != bucket("beginning"));
	begin();
	op(longer);
	op("beginning");
	op("beginning");
	is_one(longer, 1);
	is_one("beginning", 2);
	end();
}
END_TEST

/* Two names of one length that have the same hash. */
START_TEST(test_names_of_one_hash_and_length_are_two)
{
	begin();
	op("declinate");
	op("macallums");
	op("macallums");
	is_one("declinate", 1);
	is_one("macallums", 2);
	end();
}
END_TEST

static char same[32], other[32];

static void *ops_meanwhile(void *arg)
{
	if (*other)
		op(other);
	if (*same)
		op(same);
	return NULL;
}

static void another_thread(void)
{
	pthread_t t;

	ck_assert(!pthread_create(&t, NULL, ops_meanwhile, NULL) && !pthread_join(t, NULL));
}

/* The place of a name in the library's table. */
static unsigned int place(const char *s)
{
	uint32_t hash = 2166136261u;

	for (; *s; s++)
		hash = (hash ^ (unsigned char)*s) * 16777619u;
	return hash % 1024;
}

static int tried;

/* A new one with the place of that name. */
static void beside(const char *name, char *to, size_t room)
{
	do {
		snprintf(to, room, "beside %d", tried++);
	} while (place(to) != place(name));
}

START_TEST(test_a_name_that_two_threads_keep_at_once_is_one)
{
	char name[32], again[32], before[32];
	int way, i;

	begin();
	for (i = 0; i < 10; i++) {
		for (way = 0; way < 3; way++) {
			snprintf(name, sizeof(name), "name %d of way %d", i, way);
			strcpy(again, name);
			*same = *other = '\0';
			/* the same name, another one with the same place, or both */
			if (way != 1)
				strcpy(same, name);
			if (way)
				beside(name, other, sizeof(other));
			/* and behind both of them an older one */
			beside(name, before, sizeof(before));
			op(before);
			freed = 0;
			meanwhile = another_thread;
			op(name);
			ck_assert(!meanwhile);
			/* the memory for a name that the other thread has kept is freed */
			ck_assert_int_eq(freed, way != 1);
			raced = NULL;
			/* at another address, so that it is looked up */
			op(again);
			is_one(name, way == 1 ? 2 : 3);
			if (*other) {
				snprintf(again, sizeof(again), "%s", other);
				op(again);
				is_one(other, 2);
			}
			snprintf(again, sizeof(again), "%s", before);
			op(again);
			is_one(before, 2);
		}
	}
	end();
}
END_TEST

/* A pointer whose text has changed names another op, also when the new text begins like the old. */
START_TEST(test_a_name_is_the_text_at_its_pointer_now)
{
	static const char *const texts[] = { "text", "text2", "tex", "", "text", "other", "text2" };
	char at[16];
	size_t i;

	begin();
	for (i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		strcpy(at, texts[i]);
		op(at);
		OK(MXNDArrayWaitAll());
	}
	is_one("text", 2);
	is_one("text2", 2);
	is_one("tex", 1);
	is_one("", 1);
	is_one("other", 1);
	end();
}
END_TEST

/* The last test, as names are kept until the process ends. */
START_TEST(test_after_65536_names_an_op_is_an_op)
{
	enum { NAMES = 66000 };
	static char name[NAMES][8];
	int i, count;

	begin();
	op("known before");
	OK(MXNDArrayWaitAll());
	OK(MXSetProfilerState(0));
	for (i = 0; i < NAMES; i++) {
		snprintf(name[i], sizeof(name[i]), "%d", i);
		op(name[i]);
	}
	OK(MXNDArrayWaitAll());
	OK(MXSetProfilerState(1));
	op("known before");
	op("one too many");
	op("two too many");
	op(NULL);
	is_one("known before", 2);
	is_one("op", 2);
	is_one("unnamed", 1);
	ck_assert_int_eq(rows("one too many", &count), 0);
	ck_assert_int_eq(rows("two too many", &count), 0);
	/* most of those before are known by their name */
	op(name[50000]);
	is_one("50000", 1);
	end();
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_the_beginning_of_a_name_is_another_name, test_names_of_one_hash_and_length_are_two,
		test_a_name_that_two_threads_keep_at_once_is_one,
		test_a_name_is_the_text_at_its_pointer_now, test_after_65536_names_an_op_is_an_op, NULL
	};
	int failed;

	close(mkstemp(path));
	failed = suite_run("mx_names", tests, 50);
	unlink(path);
	return failed;
}
