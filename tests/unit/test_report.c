// SPDX-License-Identifier: Apache-2.0
/* demo/report.c: the figures and texts of pawl infer, of results that are made here. */
#include "util.h"
#include <demo/infer.h>
#include <demo/net.h>

static struct work w;
static struct result results[2];

/* A run of 1000 requests in one second, with nothing remarkable. */
static void reset(void)
{
	u32 i;

	memset(&w, 0, sizeof(w));
	memset(results, 0, sizeof(results));
	for (i = 0; i < 2; i++) {
		results[i].name = i ? "naive" : "pooled";
		results[i].kind = i ? PAWL_NAIVE : PAWL_POOLED;
		results[i].requests = 1000;
		results[i].busy = NSEC;
		hist_init(&results[i].latency);
		hist_init(&results[i].lateness);
		hist_init(&results[i].reload);
	}
	w.opt.batch = 8;
	w.opt.in_flight = 64;
}

/* Three digits; the next unit begins where they would be 1000. */
START_TEST(test_durations_have_three_digits)
{
	static const struct { double ns; const char *text; } list[] = {
		{ 0, "0 ns" }, { 1, "1 ns" }, { 999.4, "999 ns" }, { 999.5, "1.00 us" },
		{ 1000, "1.00 us" }, { 9990, "9.99 us" }, { 9995, "10.0 us" }, { 99900, "99.9 us" },
		{ 99950, "100 us" }, { 999400, "999 us" }, { 999500, "1.00 ms" },
		{ 12345678, "12.3 ms" }, { 999500000, "1.00 s" }, { 1e10, "10.0 s" },
		{ 1e12, "1000 s" }, { 1.5e13, "15000 s" },
	};
	char buf[32];
	u32 i;

	for (i = 0; i < COUNT(list); i++)
		ck_assert_str_eq(ns_text(buf, sizeof(buf), list[i].ns), list[i].text);
}
END_TEST

START_TEST(test_a_share_of_nothing_and_a_quantile_of_too_few_are_not_known)
{
	char buf[64];
	struct hist h;
	u32 i;

	ck_assert_str_eq(share_text(buf, sizeof(buf), 0, 0), "-");
	ck_assert_str_eq(share_text(buf, sizeof(buf), 0, 3), "0 of 3    0.00 %");
	ck_assert_str_eq(share_text(buf, sizeof(buf), 2, 3), "2 of 3   66.67 %");
	ck_assert_str_eq(share_text(buf, sizeof(buf), 3, 3), "3 of 3  100.00 %");
	hist_init(&h);
	hist_add(&h, 7);
	ck_assert_str_eq(quantile_text(buf, sizeof(buf), &h, 500), "-");
	for (i = 0; i < 9; i++)
		hist_add(&h, 7);
	ck_assert_str_eq(quantile_text(buf, sizeof(buf), &h, 500), "7 ns");
	ck_assert_str_eq(quantile_text(buf, sizeof(buf), &h, 999), "-");
}
END_TEST

START_TEST(test_the_rate_is_that_of_the_time_in_rounds)
{
	reset();
	ck_assert(result_rate(&results[0]) == 1000);
	results[0].busy = NSEC / 4;
	ck_assert(result_rate(&results[0]) == 4000);
	results[0].busy = 0;
	ck_assert(result_rate(&results[0]) == 0);
}
END_TEST

/* The median of the rounds' ratios; of an even number the mean of the two in the middle. */
START_TEST(test_the_ratio_to_the_naive_engine)
{
	static const double rates[] = { 90, 10, 40, 20, 80 };
	static const double medians[] = { 90, 50, 40, 30, 40 };
	u32 i;

	reset();
	for (i = 0; i < COUNT(rates); i++) {
		/* the naive one's rates differ, so that the ratio is not that of the medians */
		results[1].rate[i] = i + 1;
		results[0].rate[i] = rates[i] * (i + 1);
		results[0].nrates = results[1].nrates = i + 1;
		ck_assert_msg(ratio_to_naive(&w, results, 2) == medians[i], "%u: %f", i + 1,
			      ratio_to_naive(&w, results, 2));
	}
	/* it is unknown of one engine, of a load with a rate, and of other numbers of rounds */
	ck_assert(ratio_to_naive(&w, results, 1) == 0);
	w.opt.rate = 1;
	ck_assert(ratio_to_naive(&w, results, 2) == 0);
	w.opt.rate = 0;
	results[1].nrates--;
	ck_assert(ratio_to_naive(&w, results, 2) == 0);
	results[0].nrates = results[1].nrates = 0;
	ck_assert(ratio_to_naive(&w, results, 2) == 0);
}
END_TEST

/* Each limit exactly, and one beyond; the warnings of report_warnings(). */
START_TEST(test_what_is_warned_of)
{
	static const struct {
		u64 late, full, unpushed, requests, busy;
		double rate;
		const char *says;	/* NULL: nothing */
	} list[] = {
		{ 0, 0, 0, 1000, NSEC, 1000, NULL },
		{ 10, 0, 0, 1000, NSEC, 1000, NULL },
		{ 11, 0, 0, 1000, NSEC, 1000, "pooled engine: the generator fell behind: 11 "
		  "of 1000 requests were pushed over 1 ms late with slots free" },
		{ 0, 10, 0, 1000, NSEC, 1000, NULL },
		{ 0, 5, 5, 1000, NSEC, 1000, NULL },
		{ 0, 6, 5, 1000, NSEC, 1000, "pooled engine: overloaded: 6 arrivals found no free "
		  "slot (--in-flight), 5 were never pushed" },
		{ 0, 0, 11, 1000, NSEC, 1000, "pooled engine: overloaded: 0 arrivals found no free "
		  "slot (--in-flight), 11 were never pushed" },
		{ 0, 0, 0, 1000, NSEC, 1050, NULL },
		{ 0, 0, 0, 1000, NSEC, 1060, "pooled engine: 1060 requests/s were asked for, 1000 "
		  "reached" },
		/* too few to tell */
		{ 0, 0, 0, 999, NSEC, 5000, NULL },
		/* without a rate */
		{ 999, 999, 999, 1000, NSEC, 0, NULL },
	};
	u32 i;

	for (i = 0; i < COUNT(list); i++) {
		reset();
		w.opt.rate = list[i].rate;
		results[0].late = list[i].late;
		results[0].full = list[i].full;
		results[0].unpushed = list[i].unpushed;
		results[0].requests = list[i].requests;
		results[0].busy = list[i].busy;
		report_warnings(&w, &results[0]);
		ck_assert_msg(w.nwarnings == !!list[i].says, "%u: %u", i, w.nwarnings);
		if (list[i].says)
			ck_assert_str_eq(w.warning[0], list[i].says);
	}
}
END_TEST

/* There is room for so many; more are not kept, and long ones are cut. */
START_TEST(test_more_warnings_than_there_is_room_for)
{
	char longest[400];
	u32 i;

	reset();
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	for (i = 0; i < MAX_WARNINGS + 2; i++)
		warn(&w, "%u %s", i, longest);
	ck_assert_uint_eq(w.nwarnings, MAX_WARNINGS);
	for (i = 0; i < MAX_WARNINGS; i++) {
		ck_assert_uint_eq(strlen(w.warning[i]), sizeof(w.warning[i]) - 1);
		ck_assert(w.warning[i][0] == (char)('0' + i) && w.warning[i][1] == ' ');
	}
}
END_TEST

static char *printed(int n, bool verified)
{
	FILE *was = stdout;
	char *out = NULL;
	size_t len;

	stdout = open_memstream(&out, &len);
	MUST(stdout);
	report_text(&w, results, n, verified);
	MUST(!fclose(stdout));
	stdout = was;
	return out;
}

/* Four times in a second, and only while it is due; the line is removed once, if there is one. */
START_TEST(test_progress_on_a_terminal)
{
	static const struct { u64 now; const char *says; } list[] = {
		{ 6999999999, "" }, { 7000000000, "\r5 s, pooled engine: 1000 requests\033[K" },
		{ 7000000001, "" }, { 7249999999, "" },
		{ 7600000000, "\r6 s, pooled engine: 1000 requests\033[K" }, { 7849999999, "" },
		{ 0, "\r\033[K" }, { 0, "" },
	};
	FILE *was = stderr;
	char *out = NULL;
	size_t len;
	u32 i;

	reset();
	w.started = 2 * (u64)NSEC;
	w.next_tick = 7 * (u64)NSEC;
	for (i = 0; i < COUNT(list); i++) {
		stderr = open_memstream(&out, &len);
		MUST(stderr);
		if (list[i].now)
			progress(&w, &results[0], list[i].now);
		else
			progress_end(&w);
		MUST(!fclose(stderr));
		stderr = was;
		ck_assert_msg(!strcmp(out, list[i].says), "%u: %s", i, out);
		free(out);
	}
}
END_TEST

static struct image_set images;

/* Two engines with other numbers in each place; two images of three were answered by model a. */
static void fill(void)
{
	static u8 seen[2][4] = { { SEEN | RIGHT, SEEN, SEEN | RIGHT, 0 }, { 0 } },
		  split[] = { 0, 1, 1, 1 };
	u32 i, k;

	reset();
	images.count = 4;
	images.split = split;
	w.images = &images;
	w.seen[0] = seen[0];
	w.seen[1] = seen[1];
	w.answers[0] = 21;
	w.answers[1] = 22;
	for (i = 0; i < 2; i++) {
		struct result *r = &results[i];

		r->requests = 2000 + i;
		r->busy = 2 * (u64)NSEC;
		r->workers = 5;
		r->nrates = 3;
		r->checked = 100 + i;
		r->reloads = i ? 0 : 7;
		for (k = 0; k < 3; k++)
			r->rate[k] = i ? 1000 : 2500;
		for (k = 1; k <= 1000; k++)
			hist_add(&r->latency, i ? 1 : k <= 500 ? 11 : k <= 900 ? 22 :
				 k <= 990 ? 33 : k <= 999 ? 44 : 55);
		r->stats = (struct pawl_stats){ .pushed = 31, .helped = 32, .handed = 33,
						.stolen = 34, .sleeps = 35, .wakes = 36 };
	}
	for (k = 0; k < 10; k++)
		hist_add(&results[0].reload, k < 5 ? 3 : 9);
}

static void has(const char *out, const char *line)
{
	ck_assert_msg(strstr(out, line) != NULL, "no '%s' in %s", line, out);
}

START_TEST(test_the_report_of_a_run)
{
	char *out;

	fill();
	out = printed(2, true);
	has(out,
	    "engine      workers   requests  requests/s    images/s      p50      p90"
	    "      p99    "
	    "p99.9      max\n"
	    "pooled            5       2000        1000        8000    11 ns    22 ns"
	    "    33 ns    44 ns    "
	    "55 ns\n"
	    "naive             -       2001        1000        8004     1 ns     1 ns"
	    "     1 ns     1 ns     "
	    "1 ns\n"
	    "ratio                                2.50x  (requests/s by the naive engine's; "
	    "median of 3 turns)\n\n"
	    "p50 to max: the latency of a request, from its push to the end of its last\nlayer."
	    "  With 64 in flight it includes waiting for those before.  The naive\n"
	    "engine runs every op inside its push, on one thread: nothing waits.\n\n"
	    "weights       requests   right, all images         right, held out          \n"
	    "model a             21   2 of 3   66.67 %          1 of 2   50.00 %\n"
	    "model b             22   -                         -\n\n"
	    "pooled     31 ops pushed, 32 helped, 33 handed, 34 stolen; 35 sleeps, 36 wakes\n"
	    "           7 reloads, from push to swapped p50 3 ns, max 9 ns\n"
	    "naive      31 ops pushed, 32 helped, 33 handed, 34 stolen; 35 sleeps, 36 wakes\n\n"
	    "Verified: each of 201 answers is equal, to the last bit, to that of a serial loop\n"
	    "over the layers; every request saw one version of the weights (7 reloads).\n");
	free(out);
}
END_TEST

START_TEST(test_the_report_of_one_engine_with_a_rate)
{
	char *out;
	u32 k;

	fill();
	w.opt.rate = 500;
	w.opt.device = PAWL_CUDA;
	w.opt.trace = "a-file";
	for (k = 0; k < 100; k++)
		hist_add(&results[0].lateness, k < 50 ? 4 : k < 99 ? 5 : 6);
	hist_init(&results[0].latency);
	out = printed(1, true);
	has(out,
	    "      -        -        -        -        -\n\n"
	    "p50 to max: the latency of a request, from its intended arrival to the end of its "
	    "last\nlayer.\n-: too few requests to tell that percentile.\n\n");
	has(out, "           arrivals were pushed late by p50 4 ns, p99 5 ns, max 6 ns\n"
	    "\ntrace      a-file, of the pooled engine; opens in https://ui.perfetto.dev\n");
	has(out,
	    "Verified: each of 100 answers is equal, in class and to 0.0001, to that of a "
	    "serial loop");
	ck_assert(!strstr(out, "ratio") && !strstr(out, "naive") && !strstr(out, "in flight"));
	free(out);
	/* of a closed loop of one engine nothing is said of the other */
	w.opt.rate = 0;
	out = printed(1, true);
	has(out, "layer.  With 64 in flight it includes waiting for those before.\n-: too few");
	free(out);
	/* nothing waits for those before in the naive engine */
	w.opt.engine = PAWL_NAIVE;
	out = printed(1, true);
	has(out, "layer.\n-: too few");
	free(out);
}
END_TEST

/* What was loaded, and how the load is made. */
START_TEST(test_the_head_of_a_report)
{
	static const struct {
		double rate;
		bool poisson;
		u64 reload;
		int cpus;
		const char *says;
	} list[] = {
		{ 0, true, 0, 1,
		  "load       closed loop, 64 requests in flight, 8 images each\n"
		  "machine    CPU, 1 CPU; GEMM\n\n" },
		{ 0, true, 9, 2,
		  "load       closed loop, 64 requests in flight, 8 images each\n"
		  "reloads    a and b change places every 9 requests, by one op that writes "
		  "all weights\n"
		  "machine    CPU, 2 CPUs; GEMM\n\n" },
		{ 12.5, true, 0, 0,
		  "load       open loop, 12.5 requests/s (poisson arrivals), at most 64 in "
		  "flight, 8 images each\nmachine    CPU, 0 CPUs; GEMM\n\n" },
		{ 3, false, 0, 3,
		  "load       open loop, 3 requests/s (constant arrivals), at most 64 in "
		  "flight, 8 images each\nmachine    CPU, 3 CPUs; GEMM\n\n" },
	};
	struct model m = { .nlayers = 3, .in_dim = 4, .out_dim = 5 };
	char *out, name[128], want[2048], a[] = "/a", b[] = "/b", file[] = "/i";
	FILE *was = stdout, *f;
	size_t len;
	u32 i;
	const char *p;

	fill();
	images.width = 6;
	images.height = 7;
	images.held_out = 2;
	w.path[0] = a;
	w.path[1] = b;
	w.images_path = file;
	w.shape = &m;
	w.nweights = 88;
	cpu_model(name, sizeof(name));
	for (i = 0; i < COUNT(list); i++) {
		w.opt.rate = list[i].rate;
		w.opt.poisson = list[i].poisson;
		w.opt.reload_every = list[i].reload;
		w.cpus = list[i].cpus;
		stdout = open_memstream(&out, &len);
		MUST(stdout);
		report_head(&w);
		MUST(!fclose(stdout));
		stdout = was;
		f = fmemopen(want, sizeof(want), "w");
		fprintf(f,
			"pawl %s: digits through a neural network, every request a graph of ops\n\n"
			"model a    /a: 3 layers, 4 -> 5, 88 weights\n"
			"model b    /b: the same layers, other weights\n"
			"images     /i: 4 of 6 x 7, 2 of them held out of training\n",
			pawl_version());
		for (p = list[i].says; *p; p++)
			if (!strncmp(p, "CPU,", 4) && (p += 2))
				fputs(name, f);
			else if (!strncmp(p, "GEMM", 4) && (p += 3))
				fputs(net_gemm(), f);
			else
				fputc(*p, f);
		MUST(!fclose(f));
		ck_assert_str_eq(out, want);
		free(out);
	}
}
END_TEST

START_TEST(test_the_report_of_wrong_answers)
{
	char *out;

	fill();
	results[0].wrong = 1;
	results[1].wrong = 2;
	results[0].mixed = 3;
	results[1].mixed = 4;
	out = printed(2, false);
	has(out, "\nFAILED: of 201 answers 3 differ from the serial computation and 7 saw\n"
	    "more than one version of the weights.\n");
	ck_assert(!strstr(out, "Verified"));
	free(out);
}
END_TEST

/* --- demo/verify.c --- */

enum { CLASSES = 3, BATCH = 2 };

/* Three images in batches of two: the last batch has the first image again. */
static void answers(void)
{
	static float expected[2][2 * BATCH * CLASSES] = {
		{ 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0 }, { 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0 }
	};
	static u8 label[] = { 0, 2, 2 }, split[] = { 0, 1, 1 }, seen[2][4];

	reset();
	memset(seen, 0, sizeof(seen));
	images = (struct image_set){
		.count = 3, .classes = CLASSES, .label = label, .split = split
	};
	w.images = &images;
	w.opt.batch = BATCH;
	w.out_size = BATCH * CLASSES;
	w.nbatches = 2;
	w.expected[0] = expected[0];
	w.expected[1] = expected[1];
	w.seen[0] = seen[0];
	w.seen[1] = seen[1];
}

START_TEST(test_an_answer_is_compared_with_that_of_its_version)
{
	struct result *r = results;
	struct answer a = { .request = 5 };

	answers();
	for (a.version = 0; a.version < 4; a.version++)
		for (a.batch = 0; a.batch < 2; a.batch++) {
			a.out = w.expected[a.version & 1] + a.batch * w.out_size;
			verify_answer(&w, &a, r);
		}
	ck_assert(r->checked == 8 && !r->wrong && !r->mixed && !*r->first_wrong);
	/* that of the other batch, and of the other version */
	a = (struct answer){ .request = 5, .batch = 1, .version = 2, .out = w.expected[0] };
	verify_answer(&w, &a, r);
	ck_assert(r->checked == 9 && r->wrong == 1 && !r->mixed);
	ck_assert_str_eq(r->first_wrong,
			 "request 5 (batch 1, version 2) has other outputs than the "
			 "serial computation");
	a = (struct answer){ .request = 6, .version = 3, .out = w.expected[0] };
	verify_answer(&w, &a, r);
	ck_assert(r->checked == 10 && r->wrong == 2 && !r->mixed);
	/* of a mixed one only that is said, and the first message stays */
	a.mixed = true;
	verify_answer(&w, &a, r);
	ck_assert(r->checked == 11 && r->wrong == 2 && r->mixed == 1);
	ck_assert_msg(strstr(r->first_wrong, "request 5 ") == r->first_wrong, "%s", r->first_wrong);
	*r->first_wrong = 0;
	r->mixed = 0;
	verify_answer(&w, &a, r);
	ck_assert_str_eq(r->first_wrong,
			 "request 6 began with version 3 of the weights and met another");
	a.mixed = false;
	verify_answer(&w, &a, r);
	ck_assert_msg(strstr(r->first_wrong, "request 6 began") == r->first_wrong, "%s",
		      r->first_wrong);
}
END_TEST

/* The last bit on a CPU; on a device a rounding error, if the class stays. */
START_TEST(test_how_equal_an_answer_must_be)
{
	static const struct { float out[BATCH * CLASSES]; bool cpu, cuda; } list[] = {
		{ { 1, 0, 0, 0, 1, 0 }, true, true },
		{ { 1, 0, 0, 0, 1.00005f, 0 }, false, true },
		{ { 1, 0, 0, 0, 1, -0.00005f }, false, true },
		{ { 1, 0, 0, 0, 1, 0.0002f }, false, false },
		{ { 1.0002f, 0, 0, 0, 1, 0 }, false, false },
		{ { NAN, 0, 0, 0, 1, 0 }, false, false },
		{ { 1, 0, 0, 0, 1, NAN }, false, false },
		{ { 1, -0.0f, 0, 0, 1, 0 }, false, true },
	};
	struct answer a = { 0 };
	u32 i, cuda;

	for (i = 0; i < COUNT(list); i++)
		for (cuda = 0; cuda < 2; cuda++) {
			answers();
			w.opt.device = cuda ? PAWL_CUDA : PAWL_CPU;
			a.out = list[i].out;
			verify_answer(&w, &a, results);
			ck_assert_msg(results[0].wrong == !(cuda ? list[i].cuda : list[i].cpu),
				      "%u %u", i, cuda);
		}
	/* two classes that are as likely but for a rounding error */
	answers();
	w.opt.device = PAWL_CUDA;
	w.expected[0][3] = 1.00002f;
	a.out = (float[]){ 1, 0, 0, 1, 1.00002f, 0 };
	verify_answer(&w, &a, results);
	ck_assert_uint_eq(results[0].wrong, 1);
	w.expected[0][3] = 0;
}
END_TEST

/* Each image counts once per model: the first answer decides, and the batch that wraps does not. */
START_TEST(test_which_images_are_right)
{
	struct answer a = { .version = 4 };
	struct accuracy c;

	answers();
	c = accuracy_of(&w, 0);
	ck_assert(!c.seen && !c.right && !c.held_seen && !c.held_right);
	a.batch = 1;
	a.out = w.expected[0] + w.out_size;
	verify_judge(&w, &a);
	c = accuracy_of(&w, 0);
	ck_assert(c.seen == 1 && c.right == 1 && c.held_seen == 1 && c.held_right == 1);
	ck_assert(w.seen[0][2] == (SEEN | RIGHT) && !w.seen[0][0] && !w.seen[0][3]);
	a.batch = 0;
	a.out = w.expected[0];
	verify_judge(&w, &a);
	c = accuracy_of(&w, 0);
	ck_assert(c.seen == 3 && c.right == 2 && c.held_seen == 2 && c.held_right == 1);
	/* again, with other outputs */
	a.out = w.expected[1];
	verify_judge(&w, &a);
	ck_assert_uint_eq(accuracy_of(&w, 0).right, 2);
	ck_assert(w.seen[0][0] == (SEEN | RIGHT) && w.seen[0][1] == SEEN);
	ck_assert(w.answers[0] == 3 && !w.answers[1]);
	c = accuracy_of(&w, 1);
	ck_assert(!c.seen && !c.right && !c.held_seen && !c.held_right);
	a.version = 7;
	verify_judge(&w, &a);
	c = accuracy_of(&w, 1);
	ck_assert(c.seen == 2 && c.right == 1 && c.held_seen == 1 && c.held_right == 1);
	ck_assert(w.answers[0] == 3 && w.answers[1] == 1);
}
END_TEST

SUITE("report", test_progress_on_a_terminal,
      test_durations_have_three_digits,
      test_a_share_of_nothing_and_a_quantile_of_too_few_are_not_known,
      test_the_rate_is_that_of_the_time_in_rounds, test_the_ratio_to_the_naive_engine,
      test_what_is_warned_of, test_more_warnings_than_there_is_room_for, test_the_report_of_a_run,
      test_the_report_of_one_engine_with_a_rate, test_the_head_of_a_report,
      test_the_report_of_wrong_answers,
      test_an_answer_is_compared_with_that_of_its_version, test_how_equal_an_answer_must_be,
      test_which_images_are_right)
