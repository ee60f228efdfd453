// SPDX-License-Identifier: Apache-2.0
/* pawl serve: options, and the configuration file, which the library inih reads. */

#include <errno.h>
#include <getopt.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <tools/pawl/cmd.h>
#include "serve.h"

static const char help_text[] =
"Usage: pawl serve [OPTION]... --repository=DIR\n"
"Answer inference requests of the Open Inference Protocol over HTTP/1.1 and gRPC.\n"
"\n"
"  -r, --repository=DIR     the models: DIR/NAME/VERSION/model.onnx\n"
"  -c, --config=FILE        settings, also for single models; options have precedence\n"
"  -H, --host=ADDRESS       numeric address to listen on (127.0.0.1)\n"
"  -p, --port=N             port; 0: a free one, which the log names (8000)\n"
"  -g, --grpc-port=N        port for gRPC; 0: a free one; none: no gRPC (8001, or 0 if\n"
"                           --port is 0)\n"
"  -i, --io-threads=N       threads for connections (1)\n"
"  -w, --workers=N          threads that run layers (number of CPUs, less one)\n"
"  -h, --help               print this\n"
"\n"
"pawl-serve(1) describes the configuration file, the endpoints and the signals.\n"
"Exit status: 0: stopped by SIGTERM or SIGINT; 1: a failure; 2: the command line or the\n"
"configuration is invalid.\n";

static const struct option long_options[] = {
	{ "repository", required_argument, NULL, 'r' },
	{ "config", required_argument, NULL, 'c' },
	{ "host", required_argument, NULL, 'H' },
	{ "port", required_argument, NULL, 'p' },
	{ "grpc-port", required_argument, NULL, 'g' },
	{ "io-threads", required_argument, NULL, 'i' },
	{ "workers", required_argument, NULL, 'w' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* Where a value of a key goes, and what it may be. */
struct key {
	const char *name;
	enum { TEXT, UINT, PORT, U64, SECONDS, MILLISECONDS, MICROSECONDS, SIZES } kind;
	size_t at;
	uint64_t min, max;
};

#define SERVER(field) offsetof(struct config, field)
static const struct key server_keys[] = {
	{ "repository", TEXT, SERVER(repository), 0, 0 },
	{ "host", TEXT, SERVER(host), 0, 0 },
	{ "token", TEXT, SERVER(token), 0, 0 },
	{ "port", UINT, SERVER(port), 0, 65535 },
	{ "grpc_port", PORT, SERVER(grpc_port), 0, 65535 },
	{ "io_threads", UINT, SERVER(loops), 1, MAX_LOOPS },
	{ "workers", UINT, SERVER(workers), 1, 1024 },
	{ "max_connections", UINT, SERVER(max_connections), 1, 1000000 },
	{ "max_header", UINT, SERVER(max_header), 1024, 1 << 20 },
	{ "max_body", U64, SERVER(max_body), 1024, (uint64_t)1 << 30 },
	{ "max_memory", U64, SERVER(max_memory), 1 << 20, (uint64_t)1 << 40 },
	{ "idle_timeout", SECONDS, SERVER(idle_ns), 1, 86400 },
	{ "read_timeout", SECONDS, SERVER(read_ns), 1, 86400 },
	{ "write_timeout", SECONDS, SERVER(write_ns), 1, 86400 },
	{ "grace", SECONDS, SERVER(grace_ns), 0, 3600 },
	{ "drain", SECONDS, SERVER(drain_ns), 1, 3600 },
};

#define MODEL(field) offsetof(struct model_conf, field)
static const struct key model_keys[] = {
	{ "max_batch", UINT, MODEL(max_batch), 0, 4096 },
	{ "max_delay_us", MICROSECONDS, MODEL(delay_ns), 0, 60000000 },
	{ "preferred_batches", SIZES, 0, 1, 4096 },
	{ "queue_requests", UINT, MODEL(queue_requests), 1, 1 << 20 },
	{ "queue_bytes", U64, MODEL(queue_bytes), 1, (uint64_t)1 << 40 },
	{ "slot_bytes", U64, MODEL(slot_bytes), 0, (uint64_t)1 << 40 },
	{ "weight", UINT, MODEL(weight), 1, 1000 },
	{ "instances", UINT, MODEL(instances), 1, 1024 },
	{ "timeout_ms", MILLISECONDS, MODEL(timeout_ns), 0, 86400000 },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *v)
{
	char *end;

	errno = 0;
	*v = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *v >= min && *v <= max;
}

static bool set_text(char **to, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return false;
	free(*to);
	*to = copy;
	return true;
}

static bool parse_sizes(struct model_conf *conf, const struct key *k, const char *value)
{
	char copy[256], *save = NULL, *p;
	unsigned int i;
	uint64_t v;

	conf->npreferred = 0;
	if (strlen(value) >= sizeof(copy))
		return false;
	strcpy(copy, value);
	for (p = strtok_r(copy, ", ", &save); p; p = strtok_r(NULL, ", ", &save)) {
		if (conf->npreferred == MAX_PREFERRED || !parse_number(p, k->min, k->max, &v))
			return false;
		for (i = 0; i < conf->npreferred; i++)
			if (v <= conf->preferred[i])
				return false;
		conf->preferred[conf->npreferred++] = (unsigned int)v;
	}
	return true;
}

/* Set one key.  Returns whether the value is good. */
static bool set(const struct key *k, void *base, const char *value)
{
	static const uint64_t unit[] = { [SECONDS] = 1000000000, [MILLISECONDS] = 1000000,
		[MICROSECONDS] = 1000 };
	char *at = (char *)base + k->at;
	uint64_t v;

	if (k->kind == TEXT)
		return *value && set_text((char **)(void *)at, value);
	if (k->kind == SIZES)
		return parse_sizes(base, k, value);
	if (k->kind == PORT && !strcmp(value, "none"))
		v = GRPC_NONE;
	else if (!parse_number(value, k->min, k->max, &v))
		return false;
	if (k->kind == UINT || k->kind == PORT)
		*(unsigned int *)(void *)at = (unsigned int)v;
	else
		*(uint64_t *)(void *)at = k->kind == U64 ? v : v * unit[k->kind];
	return true;
}

/* The settings of [model NAME]: those of [model], as far as it was read, and its own. */
static struct model_conf *named(struct config *cfg, const char *name)
{
	struct named_conf *n;
	unsigned int i;

	for (i = 0; i < cfg->nnamed; i++)
		if (!strcmp(cfg->named[i].name, name))
			return &cfg->named[i].conf;
	n = realloc(cfg->named, (cfg->nnamed + 1) * sizeof(*n));
	if (!n)
		return NULL;
	cfg->named = n;
	n += cfg->nnamed++;
	snprintf(n->name, sizeof(n->name), "%s", name);
	n->conf = cfg->model;
	return &n->conf;
}

/* inih: 0 is an error. */
static int handler(void *user, const char *section, const char *name, const char *value)
{
	struct config *cfg = user;
	const struct key *keys = model_keys;
	size_t n = COUNT(model_keys), i;
	void *base = &cfg->model;

	if (!strcmp(section, "server")) {
		keys = server_keys;
		n = COUNT(server_keys);
		base = cfg;
	} else if (!strncmp(section, "model ", 6)) {
		base = strlen(section + 6) > NAME_MAX_LEN ? NULL : named(cfg, section + 6);
	} else if (strcmp(section, "model")) {
		fprintf(stderr, "%s: %s: no section is named [%s]\n", SERVE_SELF, cfg->file,
			section);
		return 0;
	}
	for (i = 0; base && i < n; i++)
		if (!strcmp(keys[i].name, name)) {
			if (set(&keys[i], base, value))
				return 1;
			fprintf(stderr, "%s: %s: '%s' is not good for %s\n", SERVE_SELF,
				cfg->file, value, name);
			return 0;
		}
	fprintf(stderr, "%s: %s: [%s] has no key '%s'\n", SERVE_SELF, cfg->file, section, name);
	return 0;
}

static int bad(const char *what, const char *value)
{
	fprintf(stderr, "%s: %s%s\n", SERVE_SELF, what, value);
	return STATUS_USAGE;
}

static int read_file(struct config *cfg)
{
	int line = ini_parse(cfg->file, handler, cfg);

	if (!line)
		return 0;
	if (line < 0)
		fprintf(stderr, "%s: %s: %s\n", SERVE_SELF, cfg->file, line == -1 ?
			strerror(errno) : "out of memory");
	else
		fprintf(stderr, "%s: %s: line %d is not good\n", SERVE_SELF, cfg->file, line);
	return STATUS_USAGE;
}

static int option(struct config *cfg, int c)
{
	static const char *const key_of[] = { ['r'] = "repository",
					      ['H'] = "host",
					      ['p'] = "port",
					      ['g'] = "grpc_port",
					      ['i'] = "io_threads",
					      ['w'] = "workers" };
	size_t i;

	for (i = 0; i < COUNT(server_keys); i++)
		if (!strcmp(server_keys[i].name, key_of[c])) {
			if (set(&server_keys[i], cfg, optarg))
				return 0;
			fprintf(stderr, "%s: '%s' is not good for --%s\n", SERVE_SELF, optarg,
				c == 'i' ? "io-threads" : c == 'g' ? "grpc-port" : key_of[c]);
			break;
		}
	return STATUS_USAGE;
}

static int check_model(const struct model_conf *m, const char *name)
{
	if (m->npreferred && m->preferred[m->npreferred - 1] > m->max_batch) {
		fprintf(stderr, "%s: [model%s%s]: a preferred batch is larger than max_batch\n",
			SERVE_SELF, *name ? " " : "", name);
		return STATUS_USAGE;
	}
	return 0;
}

static int parse(struct config *cfg, int argc, char **argv)
{
	unsigned int i;
	int c, rc;

	/* the file first, wherever its option is */
	optind = 1;
	while ((c = getopt_long(argc, argv, "r:c:H:p:g:i:w:h", long_options, NULL)) != -1) {
		if (c == '?')
			return STATUS_USAGE;
		if (c == 'h')
			return -1;
		if (c == 'c' && !set_text(&cfg->file, optarg))
			return STATUS_FAILED;
	}
	if (optind < argc)
		return bad("takes options only, not ", argv[optind]);
	rc = cfg->file ? read_file(cfg) : 0;
	optind = 1;
	while (!rc && (c = getopt_long(argc, argv, "r:c:H:p:g:i:w:h", long_options, NULL)) != -1)
		rc = c == 'c' ? 0 : option(cfg, c);
	if (rc)
		return rc;
	if (!cfg->repository)
		return bad("--repository is missing", "");
	if (cfg->grpc_port == GRPC_DEFAULT)
		cfg->grpc_port = cfg->port ? 8001 : 0;
	rc = check_model(&cfg->model, "");
	for (i = 0; !rc && i < cfg->nnamed; i++)
		rc = check_model(&cfg->named[i].conf, cfg->named[i].name);
	return rc;
}

/* As many descriptors as the limit permits, and no more connections than that. */
static void limit_connections(struct config *cfg)
{
	rlim_t want = (rlim_t)cfg->max_connections + 256;
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return;
	if (rl.rlim_cur < want) {
		rl.rlim_cur =
			rl.rlim_max != RLIM_INFINITY && rl.rlim_max < want ? rl.rlim_max : want;
		setrlimit(RLIMIT_NOFILE, &rl);
		getrlimit(RLIMIT_NOFILE, &rl);
	}
	if (rl.rlim_cur != RLIM_INFINITY && rl.rlim_cur < want)
		cfg->max_connections =
			rl.rlim_cur > 512 ? (unsigned int)rl.rlim_cur - 256 : 256;
}

int cmd_serve(int argc, char **argv)
{
	struct server *sv = calloc(1, sizeof(*sv));
	struct config *cfg;
	int rc;

	if (!sv)
		return bad("out of memory", "");
	cfg = &sv->cfg;
	cfg->port = 8000;
	cfg->grpc_port = GRPC_DEFAULT;
	cfg->loops = 1;
	cfg->max_connections = 10000;
	cfg->max_header = 16384;
	cfg->max_body = 64u << 20;
	cfg->max_memory = 1u << 30;
	cfg->idle_ns = 60000000000u;
	cfg->read_ns = cfg->write_ns = cfg->drain_ns = 30000000000u;
	cfg->grace_ns = 1000000000u;
	cfg->model = (struct model_conf){ .max_batch = 8, .queue_requests = 1000,
		.queue_bytes = 256u << 20, .slot_bytes = (uint64_t)4 << 30, .weight = 1 };
	rc = set_text(&cfg->host, "127.0.0.1") ? parse(cfg, argc, argv) : STATUS_FAILED;
	if (rc < 0) {
		fputs(help_text, stdout);
		rc = STATUS_OK;
	} else if (!rc) {
		limit_connections(cfg);
		rc = serve_run(sv) ? STATUS_FAILED : STATUS_OK;
	}
	free(cfg->repository);
	free(cfg->host);
	free(cfg->token);
	free(cfg->file);
	free(cfg->named);
	free(sv);
	return rc;
}
