// SPDX-License-Identifier: Apache-2.0
/*
 * lambda.cc - what it costs that a body is a lambda, pushed by pawl.hpp: ns per op, pushed and
 * complete, beside the same in C, in turns.
 *
 *   pointer  the body has one pointer; in C, it is op.arg
 *   words    three words; in C, in an array that was allocated before
 *   owner    three words and a std::unique_ptr, which must be destroyed; in C, the words are in
 *            memory from malloc() that the body frees
 *
 * "kept" is C with one struct pawl_op for all pushes, of which a push sets what changes.
 */
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include <pawl/pawl.hpp>

#include "bench.h"
#include "lambda.h"

#define REPS	15

static const pawl::engine *engine;

static void pointer(struct lambda *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		uint64_t *to = l->cell[i % LAMBDA_VARS];

		engine->push([to] { ++*to; }, pawl::writes(l->v[i % LAMBDA_VARS]));
	}
}

static void words(struct lambda *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		uint64_t *to = l->cell[i % LAMBDA_VARS], *a = to + 1, *b = to + 2;

		engine->push([to, a, b] { *to += *a + *b; },
			     pawl::writes(l->v[i % LAMBDA_VARS]));
	}
}

static void owner(struct lambda *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		uint64_t *to = l->cell[i % LAMBDA_VARS], *a = to + 1, *b = to + 2;

		engine->push([to, a, b, none = std::unique_ptr<int>()] { *to += *a + *b; },
			     pawl::writes(l->v[i % LAMBDA_VARS]));
	}
}

static double run(struct lambda *l, lambda_fn fn)
{
	uint64_t t0 = bench_now();

	fn(l);
	engine->wait();
	return double(bench_now() - t0) * bench_tick_ns / l->n;
}

static double median(std::vector<double> v)
{
	std::sort(v.begin(), v.end());
	return v[v.size() / 2];
}

static void measure(const char *name, int threads)
{
	static const lambda_fn fn[LAMBDA_KINDS] = {pointer, words, owner};
	static const char *const kind[LAMBDA_KINDS] = {"pointer", "words", "owner"};
	auto l = std::make_unique<struct lambda>();
	std::vector<lambda_words> array(bench_opts.ops);
	pawl::config cfg;

	cfg.workers = threads - 1;
	pawl::engine e(cfg);
	std::vector<pawl::var> vars;

	engine = &e;
	l->e = e.get();
	l->words = array.data();
	l->n = bench_opts.ops;
	for (unsigned int i = 0; i < LAMBDA_VARS; i++) {
		vars.emplace_back(e);
		l->v[i] = vars[i].get();
	}
	std::printf("{\"engine\":\"%s\",\"test\":\"lambda\"", name);
	for (unsigned int k = 0; k < LAMBDA_KINDS; k++) {
		std::vector<double> c, kept, cxx, ratio, ratio_kept;

		run(l.get(), lambda_c[k]);
		run(l.get(), fn[k]);
		for (unsigned int i = 0; i < REPS; i++) {
			l->keep = 0;
			c.push_back(run(l.get(), lambda_c[k]));
			cxx.push_back(run(l.get(), fn[k]));
			l->keep = 1;
			kept.push_back(run(l.get(), lambda_c[k]));
			ratio.push_back(cxx[i] / c[i]);
			ratio_kept.push_back(cxx[i] / kept[i]);
		}
		std::printf(",\"%s\":%.1f,\"c_%s\":%.1f,\"ratio_%s\":%.3f", kind[k], median(cxx),
			    kind[k], median(c), kind[k], median(ratio));
		std::printf(",\"kept_%s\":%.1f,\"ratio_kept_%s\":%.3f", kind[k], median(kept),
			    kind[k], median(ratio_kept));
	}
	std::puts("}");
}

void lambda_measure(const char *name, int threads)
{
	try {
		measure(name, threads);
	} catch (const std::exception &x) {
		bench_die("lambda: %s", x.what());
	}
}
