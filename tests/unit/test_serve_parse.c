// SPDX-License-Identifier: Apache-2.0
/* tools/serve/json.c, num.cc, parse.c, infer.c, http.c and conn.c: the parser of infer requests, and connections. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"
#include "../../tools/serve/num.h"
#include "../../tools/serve/serve.h"

static const struct serve_io ins[] = {
	{ "a", SERVE_FP32, 2, { -1, 3 }, false },
	{ "b", SERVE_INT16, 2, { -1, -1 }, false },
};
static const struct serve_io outs[] = {
	{ "x", SERVE_FP32, 2, { -1, 3 }, false },
	{ "y", SERVE_INT64, 1, { -1 }, false },
	{ "h", SERVE_FP16, 1, { -1 }, false },
};
static const struct serve_model model = { .name = "m",
					  .platform = "test",
					  .version = 1,
					  .ninputs = 2,
					  .noutputs = 2,
					  .inputs = ins,
					  .outputs = outs,
					  .batch = true };

static struct server server = { .cfg = { .max_memory = 1 << 30 } };
static struct loop loop = { .sv = &server };
static struct request req;
static char why[1024];

static int parse_bytes(const char *body, size_t n, int64_t json)
{
	/* exactly as many bytes: the address sanitizer sees the rest */
	char *copy = malloc(n ? n : 1);
	int rc;

	memcpy(copy, body, n);
	memset(&req, 0, sizeof(req));
	req.arrival_ns = 1000;
	*why = 0;
	rc = infer_parse(&loop, &req, &model, copy, n, json, why, sizeof(why));
	ck_assert(!rc == !*why);
	free(copy);
	return rc;
}

static int parse(const char *text)
{
	return parse_bytes(text, strlen(text), -1);
}

static void done(void)
{
	infer_release(&loop, &req);
	loop.free_requests = NULL;
}

START_TEST(test_json_numbers_are_the_nearest_doubles)
{
	static const char *const text[] = {
		"0",
		"-0",
		"1",
		"-1.5",
		"0.1",
		"1e22",
		"1e-22",
		"1e23",
		"9007199254740993",
		"123456789012345678901234567890",
		"2.2250738585072011e-308",
		"5e-324",
		"1.7976931348623157e308",
		"3.4028234663852886e38",
		"0.30000000000000004",
		"1E+2",
		"0.000000000000000000000000000000000000000001",
		"1e-400",
		"0e999999999",
		"17976931348623157000000000000000000000000000000000000000000000000000000000000000000"
	};
	struct js j;
	size_t i;
	double d;

	for (i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
		js_init(&j, text[i], strlen(text[i]));
		ck_assert_msg(js_double(&j, &d) && js_end(&j), "%s: %s", text[i], j.error);
		ck_assert_msg(d == strtod(text[i], NULL), "%s: %.17g", text[i], d);
	}
	js_init(&j, "-0", 2);
	ck_assert(js_double(&j, &d) && signbit(d));
	js_init(&j, "1e400", 5);
	ck_assert(!js_double(&j, &d));
}
END_TEST

/* Of all exponents, with many digits and with few, and digits next to the middle of two doubles. */
START_TEST(test_numbers_are_read_and_written_as_by_the_c_library)
{
	uint64_t u = 88172645463325252u;
	char text[64], list[200], shortest[64];
	float f, back[2];
	double d, got;
	struct js j;
	int i, n;

	for (i = 0; i < 60000; i++) {
		u ^= u << 13, u ^= u >> 7, u ^= u << 17;
		d = (double)(int64_t)u / (i % 3 ? i % 2 ? 1e19 : 1e16 : (double)(1 + u % 1000));
		if (i % 3 == 2)
			snprintf(text, sizeof(text), "%" PRIu64 "e-%u",
				 (uint64_t)1 << 53 | u >> 11 | 1, (unsigned int)(u % 30));
		else
			snprintf(text, sizeof(text), "%.*g", 3 + (int)(u % 17), d);
		d = strtod(text, NULL);
		js_init(&j, text, strlen(text));
		ck_assert_msg(js_double(&j, &got) && js_end(&j) && got == d, "%s: %.17g", text, got);
		/* short numbers are read in another way where there is text around them */
		snprintf(list, sizeof(list), "[%*s%s, %s,%s%*s]", i & 16, "", text, text, text, i & 32, "");
		js_init(&j, list, strlen(list));
		ck_assert(js_open(&j, '['));
		n = (int)js_reals(&j, (char *)back, sizeof(back[0]), 2);
		ck_assert_msg(!n || (n == 2 && back[0] == (float)d && back[1] == (float)d), "%s", text);
		/* any float, or one between 1/1000 and 2^23 */
		memcpy(&f, &(uint32_t){ (uint32_t)(i % 4 ? u & 0x807fffff : u) }, sizeof(f));
		if (i % 4)
			f = ldexpf(f, 149 - 33 + (int)((u >> 40) % 33));
		if (!isfinite(f))
			continue;
		*num_float(text, f) = 0;
		for (n = 0; n < 9; n++) {
			snprintf(shortest, sizeof(shortest), "%.*e", n, (double)f);
			if (strtof(shortest, NULL) == f)
				break;
		}
		/* an integer may have all of its digits */
		ck_assert_msg(strtod(text, NULL) == (strpbrk(text, ".e") ?
			      strtod(shortest, NULL) : (double)f), "%s, not %s", text, shortest);
	}
}
END_TEST

START_TEST(test_json_refuses_what_is_no_json)
{
	static const char *const text[] = { "",
					    " ",
					    "01",
					    "01.5",
					    "-.5",
					    "--1.5",
					    "1.2.3",
					    "1.",
					    ".1",
					    "+1",
					    "-",
					    "1e",
					    "1e+",
					    "0x1",
					    "nan",
					    "inf",
					    "tru",
					    "nul",
					    "\"",
					    "\"\\",
					    "\"\\u12\"",
					    "\"\\ud800\"",
					    "\"\\udc00\"",
					    "\"\\ud800\\u0041\"",
					    "\"\x01\"",
					    "\"\xc0\x80\"",
					    "\"\xed\xa0\x80\"",
					    "\"\xf4\x90\x80\x80\"",
					    "\"\xe2\x82\"",
					    "\"\xff\"",
					    "[",
					    "[1",
					    "[1,",
					    "[1,]",
					    "[,1]",
					    "[1 2]",
					    "{",
					    "{\"a\"",
					    "{\"a\":",
					    "{\"a\":1",
					    "{\"a\":1,}",
					    "{a:1}",
					    "{\"a\" 1}",
					    "[}",
					    "{]",
					    "1 2",
					    "[]]" };
	char list[100];
	struct js j;
	size_t i;
	float f;

	for (i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
		js_init(&j, text[i], strlen(text[i]));
		ck_assert_msg(!(js_skip(&j) && js_end(&j)), "%s", text[i]);
		ck_assert_ptr_nonnull(j.error);
		snprintf(list, sizeof(list), "[%16s%s,%32s]", "", text[i], "");
		js_init(&j, list, strlen(list));
		ck_assert_msg(js_open(&j, '[') && !js_reals(&j, (char *)&f, sizeof(f), 1), "%s", list);
	}
}
END_TEST

START_TEST(test_json_skips_what_is_json)
{
	static const char *const text[] = {
		"{}",
		"[]",
		" [ ] ",
		"null",
		"true",
		"false",
		"-1.5e-3",
		"\"\\\"\"",
		"[[],{},[[]]]",
		"{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":\"\xe2\x82\xac\\ud83d\\ude00\"}",
		"\"\xf0\x9f\x98\x80\"",
		"[1,\n\t2]\r\n"
	};
	char deep[2 * JS_DEPTH + 3] = "";
	struct js j;
	size_t i;

	for (i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
		js_init(&j, text[i], strlen(text[i]));
		ck_assert_msg(js_skip(&j) && js_end(&j), "%s: %s", text[i], j.error);
	}
	memset(deep, '[', JS_DEPTH);
	memset(deep + JS_DEPTH, ']', JS_DEPTH);
	js_init(&j, deep, 2 * JS_DEPTH);
	ck_assert(js_skip(&j) && js_end(&j));
	memset(deep, '[', JS_DEPTH + 1);
	memset(deep + JS_DEPTH + 1, ']', JS_DEPTH + 1);
	js_init(&j, deep, 2 * JS_DEPTH + 2);
	ck_assert(!js_skip(&j));
}
END_TEST

START_TEST(test_json_strings_are_decoded)
{
	static const char text[] = "\"a\\n\\u00e9\\u20ac\\ud83d\\ude00\\/\"";
	struct js_str s;
	struct js j;
	char buf[32];

	js_init(&j, text, strlen(text));
	ck_assert(js_string(&j, &s) && js_end(&j));
	ck_assert(s.escapes);
	ck_assert_uint_eq(js_decode(&s, buf, sizeof(buf)), 12);
	ck_assert_str_eq(buf, "a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/");
	ck_assert(js_is(&s, "a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/"));
	ck_assert(!js_is(&s, "a"));
	/* a character is not cut */
	ck_assert_uint_eq(js_decode(&s, buf, 4), 2);
}
END_TEST

START_TEST(test_integers_keep_their_range)
{
	static const struct { const char *text; bool good; int64_t v;
	} list[] = { { "9223372036854775807", true, INT64_MAX },
		     { "-9223372036854775808", true, INT64_MIN },
		     { "9223372036854775808", false, 0 },
		     { "-9223372036854775809", false, 0 },
		     { "-0", true, 0 },
		     { "99999999999999999999", false, 0 },
		     { "1.0", false, 0 },
		     { "1e3", false, 0 } };
	struct js j;
	uint64_t u;
	int64_t v;
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		js_init(&j, list[i].text, strlen(list[i].text));
		ck_assert_msg(js_int(&j, &v) == list[i].good, "%s", list[i].text);
		ck_assert(!list[i].good || v == list[i].v);
	}
	js_init(&j, "18446744073709551615", 20);
	ck_assert(js_uint(&j, &u) && u == UINT64_MAX);
	js_init(&j, "18446744073709551616", 20);
	ck_assert(!js_uint(&j, &u));
	js_init(&j, "100000000000000000000", 21);
	ck_assert(!js_uint(&j, &u));
	js_init(&j, "-1", 2);
	ck_assert(!js_uint(&j, &u));
}
END_TEST

START_TEST(test_members_in_any_order)
{
	ck_assert_int_eq(
		parse("{\"outputs\":[{\"parameters\":{\"binary_data\":true},\"name\":\"y\"}],"
		      "\"inputs\":[{\"data\":[[1,2,3],[4,5,6]],\"shape\":[2,3],\"name\":\"a\","
		      "\"datatype\":\"FP32\"},{\"name\":\"b\",\"shape\":[2,1],\"datatype\":\"INT16\","
		      "\"data\":[-1,7],\"parameters\":{}}],\"id\":\"q\","
		      "\"parameters\":{\"timeout\":5,\"priority\":2,\"own\":[1,{}]}}"),
		0);
	ck_assert_uint_eq(req.rows, 2);
	ck_assert_uint_eq(req.bytes, 2 * 3 * 4 + 2 * 2);
	ck_assert_float_eq(((const float *)req.in[0].data)[5], 6);
	ck_assert_int_eq(((const int16_t *)req.in[1].data)[0], -1);
	ck_assert_uint_eq(req.wanted, 2);
	ck_assert_uint_eq(req.binary, 2);
	ck_assert_uint_eq(req.deadline_ns, 1000 + 5000);
	ck_assert_uint_eq(req.level, 1);
	done();
}
END_TEST

#define A "{\"name\":\"a\",\"shape\":[1,3],\"datatype\":\"FP32\",\"data\":[1,2,3]}"
#define B "{\"name\":\"b\",\"shape\":[1,2],\"datatype\":\"INT16\",\"data\":[1,2]}"

START_TEST(test_every_shorter_request_is_refused)
{
	static const char text[] = "{\"inputs\":[" A "," B "],\"outputs\":[{\"name\":\"x\"}]}";
	size_t n;

	ck_assert_int_eq(parse(text), 0);
	done();
	for (n = 0; n < sizeof(text) - 1; n++) {
		ck_assert_msg(parse_bytes(text, n, -1) == 400, "%zu bytes", n);
		done();
	}
}
END_TEST

START_TEST(test_defaults_of_parameters)
{
	ck_assert_int_eq(parse("{\"inputs\":[" A "," B "]}"), 0);
	ck_assert_uint_eq(req.wanted, 3);
	ck_assert_uint_eq(req.binary, 0);
	ck_assert_uint_eq(req.level, LEVELS / 2 - 1);
	ck_assert_uint_eq(req.deadline_ns, 0);
	done();
	ck_assert_int_eq(parse("{\"inputs\":[" A "," B "],\"parameters\":{\"priority\":99,"
			       "\"timeout\":18446744073709551615}}"), 0);
	ck_assert_uint_eq(req.level, LEVELS - 1);
	ck_assert_uint_gt(req.deadline_ns, (uint64_t)1 << 60);
	done();
}
END_TEST

START_TEST(test_inputs_that_differ_in_rows_are_no_batch)
{
	ck_assert_int_eq(parse("{\"inputs\":[" A "," B "]}"), 0);
	ck_assert(req.batch);
	done();
	ck_assert_int_eq(parse("{\"inputs\":[" A
			       ",{\"name\":\"b\",\"shape\":[2,1],\"datatype\":\"INT16\","
			       "\"data\":[1,2]}]}"),
			 0);
	ck_assert(!req.batch);
	ck_assert_uint_eq(req.rows, 1);
	done();
}
END_TEST

START_TEST(test_a_huge_shape_costs_no_memory)
{
	ck_assert_int_eq(parse("{\"inputs\":[{\"name\":\"b\",\"shape\":[1,4611686018427387904],"
			       "\"datatype\":\"INT16\",\"data\":[1]}]}"), 400);
	done();
	ck_assert_int_eq(parse("{\"inputs\":[{\"name\":\"b\",\"shape\":[1,536870912],"
			       "\"datatype\":\"INT16\",\"data\":[1]}]}"), 400);
	ck_assert_ptr_null(req.in[1].buf);
	done();
}
END_TEST

START_TEST(test_binary_data_is_inside_the_body)
{
	static const char json[] =
		"{\"inputs\":[{\"name\":\"a\",\"shape\":[1,3],\"datatype\":\"FP32\","
		"\"parameters\":{\"binary_data_size\":12}},{\"name\":\"b\",\"shape\":[1,1],"
		"\"datatype\":\"INT16\",\"parameters\":{\"binary_data_size\":2}}]}";
	char body[sizeof(json) + 32];
	size_t n = sizeof(json) - 1;

	memset(body, 0, sizeof(body));
	memcpy(body, json, n);
	ck_assert_int_eq(parse_bytes(body, n + 14, (int64_t)n), 0);
	done();
	ck_assert_int_eq(parse_bytes(body, n + 13, (int64_t)n), 400);
	done();
	ck_assert_int_eq(parse_bytes(body, n + 15, (int64_t)n), 400);
	done();
	ck_assert_int_eq(parse_bytes(body, n + 14, (int64_t)n + 15), 400);
	done();
	ck_assert_int_eq(parse_bytes(body, n, INT64_MAX), 400);
	done();
}
END_TEST

/* --- connections: a loop without a thread, and one client --- */

static struct server sv;
static struct loop *const l1 = &sv.loops[1];	/* loop 0 has an engine */
static int client;

static struct conn *connected(unsigned int kind)
{
	struct conn *c;
	int fd[2];

	memset(&sv, 0, sizeof(sv));
	sv.cfg = (struct config){ .loops = 2,
				  .max_body = 1 << 20,
				  .idle_ns = UINT64_MAX / 4,
				  .read_ns = UINT64_MAX / 4,
				  .write_ns = UINT64_MAX / 4 };
	l1->sv = &sv;
	l1->index = 1;
	l1->ep = epoll_create1(EPOLL_CLOEXEC);
	l1->scratch = malloc(65536);
	ck_assert_int_eq(port_init(&l1->port), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
	client = fd[1];
	c = conn_open(l1, fd[0], kind);
	ck_assert_ptr_nonnull(c);
	return c;
}

static void disconnected(void)
{
	close(client);
	loop_step(l1);
	ck_assert_uint_eq(l1->nconns, 0);
	buf_free(l1);
	free(l1->scratch);
	close(l1->ep);
	port_fini(&l1->port);
}

/* The answers that have arrived. */
static unsigned int answers(void)
{
	static char buf[1 << 20];
	ssize_t n = recv(client, buf, sizeof(buf) - 1, 0);
	unsigned int k = 0;
	char *p;

	buf[n > 0 ? n : 0] = 0;
	for (p = buf; (p = strstr(p, "HTTP/1.1 ")); p++)
		k++;
	return k;
}

START_TEST(test_a_connection_yields_to_others)
{
	static const char ask[] = "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n";
	struct conn *c = connected(LISTEN_HTTP);
	unsigned int i, n, turns = 0, all = 2000;
	char text[2000 * sizeof(ask)];

	for (i = 0; i < all; i++)
		memcpy(text + i * (sizeof(ask) - 1), ask, sizeof(ask) - 1);
	ck_assert_int_eq(send(client, text, all * (sizeof(ask) - 1), 0),
			 all * (sizeof(ask) - 1));
	conn_event(c, EPOLLIN);
	n = answers();
	ck_assert_uint_ge(n, 1);
	ck_assert_uint_le(n, 64);
	/* and goes on without a further event */
	for (; l1->again; turns++) {
		loop_step(l1);
		i = answers();
		ck_assert_uint_le(i, 64);
		n += i;
	}
	ck_assert_uint_eq(n, all);
	ck_assert_uint_ge(turns, all / 64);
	/* closed while it waits for its turn */
	ck_assert_int_gt(send(client, text, 100 * (sizeof(ask) - 1), 0), 0);
	conn_event(c, EPOLLIN);
	ck_assert_ptr_nonnull(l1->again);
	conn_event(c, EPOLLHUP);
	disconnected();
}
END_TEST

/* The tick of a server that stops reads the end before epoll reports it. */
START_TEST(test_a_client_of_grpc_leaves_while_the_server_stops)
{
	struct conn *c = connected(LISTEN_GRPC);

	l1->draining = true;
	shutdown(client, SHUT_RDWR);
	l1->clock = c->timer_ns;
	conn_tick(l1);
	disconnected();
}
END_TEST

SUITE("serve_parse", test_json_numbers_are_the_nearest_doubles,
      test_numbers_are_read_and_written_as_by_the_c_library,
      test_json_refuses_what_is_no_json, test_json_skips_what_is_json,
      test_json_strings_are_decoded, test_integers_keep_their_range, test_members_in_any_order,
      test_every_shorter_request_is_refused, test_defaults_of_parameters,
      test_inputs_that_differ_in_rows_are_no_batch, test_a_huge_shape_costs_no_memory,
      test_binary_data_is_inside_the_body, test_a_connection_yields_to_others,
      test_a_client_of_grpc_leaves_while_the_server_stops)
