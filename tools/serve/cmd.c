// SPDX-License-Identifier: Apache-2.0
/*
 * pawl serve: options, and the configuration file.
 *
 * A line of the file is a section, a key with its value, a comment (its first character is # or
 * ;) or blank.  A value is the rest of its line, whatever it has.  What other readers of INI
 * files would guess is an error: a key that is repeated, a line that begins with white space
 * (which could continue the value above it), an unknown section or key.
 */

#include <errno.h>
#include <getopt.h>
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
"      --admin=ADDRESS      loads, traces and metrics have this address of their own:\n"
"                           HOST:PORT or unix:PATH\n"
"      --onnxruntime=PATH   its library, or a folder or environment of Python that has it\n"
"      --backend=WHICH      auto, native, or onnxruntime for all models (auto)\n"
"      --ready=WHICH        models that health/ready needs: any or all (all)\n"
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
	{ "ready", required_argument, NULL, 'y' },
	{ "admin", required_argument, NULL, 'a' },
	{ "onnxruntime", required_argument, NULL, 'o' },
	{ "backend", required_argument, NULL, 'b' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* Where a value of a key goes, and what it may be. */
struct key {
	const char *name;
	enum { TEXT, WORDS, UINT, PORT, READY, CONTROL, ADMIN, BACKEND, U64, SECONDS, MILLISECONDS, MICROSECONDS,
	       SIZES, VERSIONS } kind;
	size_t at;
	uint64_t min, max;
};

#define SERVER(field) offsetof(struct config, field)
static const struct key server_keys[] = {
	{ "repository", TEXT, SERVER(repository), 0, 0 },
	{ "host", TEXT, SERVER(host), 0, 0 },
	{ "admin", ADMIN, SERVER(admin), 0, 0 },
	{ "control", CONTROL, SERVER(control), 0, 0 },
	{ "token", TEXT, SERVER(token[TOKEN_INFER]), 0, 0 },
	{ "token_file", TEXT, SERVER(token_file[TOKEN_INFER]), 0, 0 },
	{ "admin_token", TEXT, SERVER(token[TOKEN_ADMIN]), 0, 0 },
	{ "admin_token_file", TEXT, SERVER(token_file[TOKEN_ADMIN]), 0, 0 },
	{ "port", UINT, SERVER(port), 0, 65535 },
	{ "grpc_port", PORT, SERVER(grpc_port), 0, 65535 },
	{ "ready", READY, SERVER(ready_any), 0, 1 },
	{ "access_log", UINT, SERVER(access_log), 0, 1000000000 },
	{ "onnxruntime", TEXT, SERVER(onnxruntime), 0, 0 },
	{ "io_threads", UINT, SERVER(loops), 1, MAX_LOOPS },
	{ "workers", UINT, SERVER(workers), 1, 1024 },
	{ "max_connections", UINT, SERVER(max_connections), 1, 1000000 },
	{ "max_header", UINT, SERVER(max_header), 1024, 1 << 20 },
	{ "max_body", U64, SERVER(max_body), 1024, (uint64_t)1 << 30 },
	{ "max_memory", U64, SERVER(max_memory), 1 << 20, (uint64_t)1 << 40 },
	{ "slot_memory", U64, SERVER(slot_memory), 0, (uint64_t)1 << 40 },
	{ "slot_idle", SECONDS, SERVER(slot_idle_ns), 1, 86400 },
	{ "model_memory", U64, SERVER(model_memory), 1 << 20, (uint64_t)1 << 40 },
	{ "idle_timeout", SECONDS, SERVER(idle_ns), 1, 86400 },
	{ "read_timeout", SECONDS, SERVER(read_ns), 1, 86400 },
	{ "write_timeout", SECONDS, SERVER(write_ns), 1, 86400 },
	{ "grace", SECONDS, SERVER(grace_ns), 0, 3600 },
	{ "drain", SECONDS, SERVER(drain_ns), 1, 3600 },
};

#define MODEL(field) offsetof(struct model_conf, field)
#define MAX_BATCH_KEY 0			/* in this table */
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
	{ "backend", BACKEND, MODEL(backend), 0, 0 },
	{ "threads", UINT, MODEL(threads), 1, 1024 },
	{ "provider", WORDS, MODEL(provider), 0, 0 },
	{ "versions", VERSIONS, 0, 1, INT64_MAX },
};

#define FREE_FDS 64u			/* descriptors that clients leave */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static char error[1024];		/* the first one */

/* Record what is not good.  Returns STATUS_USAGE. */
static int __attribute__((format(printf, 1, 2))) bad(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!*error)
		vsnprintf(error, sizeof(error), fmt, ap);
	va_end(ap);
	return STATUS_USAGE;
}

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

/* "latest N", "all", or a list. */
static bool parse_versions(struct model_conf *conf, const struct key *k, const char *value)
{
	char copy[21 * MAX_LISTED + 1], *save = NULL, *p;
	uint64_t v;

	conf->nversions = 0;
	memset(conf->versions, 0, sizeof(conf->versions));
	conf->policy = VERSIONS_ALL;
	if (!strcmp(value, "all"))
		return true;
	conf->policy = VERSIONS_LATEST;
	if (!strncmp(value, "latest ", 7)) {
		conf->nversions = parse_number(value + 7, 1, 1024, &v) ? (unsigned int)v : 0;
		return conf->nversions;
	}
	conf->policy = VERSIONS_LISTED;
	if (strlen(value) >= sizeof(copy))
		return false;
	strcpy(copy, value);
	for (p = strtok_r(copy, ", ", &save); p; p = strtok_r(NULL, ", ", &save)) {
		if (conf->nversions == MAX_LISTED || !parse_number(p, k->min, k->max, &v))
			return false;
		conf->versions[conf->nversions++] = (int64_t)v;
	}
	return conf->nversions;
}

/* HOST:PORT, with brackets around a HOST of IPv6, or unix:PATH. */
static bool good_admin(const char *value)
{
	const char *colon = strrchr(value, ':');
	uint64_t port;

	if (strlen(value) > 250)
		return false;
	if (!strncmp(value, "unix:", 5))
		return value[5];
	return colon && colon > value && parse_number(colon + 1, 0, 65535, &port) &&
		(*value == '[' ? colon[-1] == ']' : !memchr(value, ':', (size_t)(colon - value)));
}

static const char *const backends[] = { "auto", "native", "onnxruntime" };

/* Set one key.  Returns whether the value is good. */
static bool set(const struct key *k, void *base, const char *value)
{
	static const uint64_t unit[] = { [SECONDS] = 1000000000, [MILLISECONDS] = 1000000,
		[MICROSECONDS] = 1000 };
	char *at = (char *)base + k->at;
	uint64_t v;

	if (k->kind == TEXT)
		return *value && set_text((char **)(void *)at, value);
	if (k->kind == ADMIN)
		return good_admin(value) && set_text((char **)(void *)at, value);
	if (k->kind == CONTROL) {
		*(unsigned int *)(void *)at = strcmp(value, "on") ? CONTROL_OFF : CONTROL_ON;
		return !strcmp(value, "on") || !strcmp(value, "off");
	}
	if (k->kind == SIZES)
		return parse_sizes(base, k, value);
	if (k->kind == VERSIONS)
		return parse_versions(base, k, value);
	if (k->kind == WORDS)
		return snprintf(at, SERVE_PROVIDER, "%s", value) < SERVE_PROVIDER;
	if (k->kind == BACKEND) {
		for (v = 0; v < COUNT(backends) && strcmp(value, backends[v]); v++)
			;
		*(unsigned int *)(void *)at = (unsigned int)v;
		return v < COUNT(backends);
	}
	if (k->kind == PORT && !strcmp(value, "none"))
		v = GRPC_NONE;
	else if (k->kind == READY && (!strcmp(value, "any") || !strcmp(value, "all")))
		v = !strcmp(value, "any");
	else if (k->kind == READY)
		return false;
	else if (!parse_number(value, k->min, k->max, &v))
		return false;
	if (k->kind == UINT || k->kind == PORT || k->kind == READY)
		*(unsigned int *)(void *)at = (unsigned int)v;
	else
		*(uint64_t *)(void *)at = k->kind == U64 ? v : v * unit[k->kind];
	return true;
}

bool conf_set(struct model_conf *conf, uint32_t *stated, const char *key, const char *value)
{
	size_t i;

	for (i = 0; i < COUNT(model_keys) && strcmp(model_keys[i].name, key); i++)
		;
	*stated |= 1u << i;
	return set(&model_keys[i], conf, value);
}

void conf_take(struct model_conf *to, const struct model_conf *from, uint32_t stated)
{
	size_t i, at, n;

	for (i = 0; i < COUNT(model_keys); i++) {
		const struct key *k = &model_keys[i];

		if (!(stated & 1u << i))
			continue;
		at = k->kind == SIZES ? MODEL(npreferred) :
			k->kind == VERSIONS ? MODEL(policy) : k->at;
		n = k->kind == SIZES ? MODEL(queue_requests) - at :
			k->kind == VERSIONS ? sizeof(*to) - at :
			k->kind == WORDS ? SERVE_PROVIDER :
			k->kind == UINT || k->kind == BACKEND ? sizeof(unsigned int) :
			sizeof(uint64_t);
		memcpy((char *)to + at, (const char *)from + at, n);
	}
}

bool conf_batches(uint32_t stated)
{
	return stated & 1u << MAX_BATCH_KEY;
}

bool conf_good(const struct model_conf *conf)
{
	return !conf->npreferred || conf->preferred[conf->npreferred - 1] <= conf->max_batch;
}

/* The settings of [model NAME]: those of [model], which is above it, and its own. */
static struct named_conf *named(struct config *cfg, const char *name)
{
	struct named_conf *n;
	unsigned int i;

	for (i = 0; i < cfg->nnamed; i++)
		if (!strcmp(cfg->named[i].name, name))
			return &cfg->named[i];
	n = realloc(cfg->named, (cfg->nnamed + 1) * sizeof(*n));
	if (!n)
		return NULL;
	cfg->named = n;
	n += cfg->nnamed++;
	*n = (struct named_conf){ .conf = cfg->model };
	snprintf(n->name, sizeof(n->name), "%s", name);
	return n;
}

/* Where the keys of a section go. */
struct section {
	char name[NAME_MAX_LEN + 16];
	const struct key *keys;		/* NULL: no section has begun */
	size_t nkeys;
	void *base;
	uint32_t *seen;
};

static int begin_section(struct config *cfg, struct section *s, const char *name)
{
	struct named_conf *n;

	if (strlen(name) >= sizeof(s->name))
		return bad("the name of the section is too long");
	*s = (struct section){ .keys = model_keys, .nkeys = COUNT(model_keys) };
	strcpy(s->name, name);
	if (!strcmp(name, "server")) {
		*s = (struct section){ .keys = server_keys, .nkeys = COUNT(server_keys),
				       .base = cfg, .seen = &cfg->seen };
		strcpy(s->name, name);
	} else if (!strcmp(name, "model")) {
		/* else those above would not have its settings */
		if (cfg->nnamed)
			return bad("[model] has to be above the sections of single models");
		s->base = &cfg->model;
		s->seen = &cfg->model_seen;
	} else if (!strncmp(name, "model ", 6) && repo_good_name(name + 6)) {
		n = named(cfg, name + 6);
		if (!n)
			return bad("out of memory");
		s->base = &n->conf;
		s->seen = &n->seen;
	} else {
		return bad("no section is named [%s]", name);
	}
	return 0;
}

static int set_key(struct section *s, const char *name, const char *value)
{
	size_t i;

	if (!s->keys)
		return bad("'%s' is not in a section", name);
	for (i = 0; i < s->nkeys; i++)
		if (!strcmp(s->keys[i].name, name))
			break;
	if (i == s->nkeys)
		return bad("[%s] has no key '%s'", s->name, name);
	if (*s->seen & 1u << i)
		return bad("[%s] has %s twice", s->name, name);
	*s->seen |= 1u << i;
	/* a secret is not repeated in a message */
	if (!set(&s->keys[i], s->base, value))
		return strcmp(name, "token") && strcmp(name, "admin_token") ?
			bad("'%s' is not good for %s", value, name) :
			bad("the value is not good for %s", name);
	return 0;
}

/* Without white space at its end. */
static char *trimmed(char *text)
{
	char *end = text + strlen(text);

	while (end > text && strchr(" \t\r\n", end[-1]))
		*--end = 0;
	return text;
}

static int read_line(struct config *cfg, struct section *s, char *line, size_t n)
{
	char *value, *name;

	if (strlen(line) != n)
		return bad("the line has a byte 0");
	if (!*trimmed(line) || *line == '#' || *line == ';')
		return 0;
	if (*line == ' ' || *line == '\t') {
		line += strspn(line, " \t");
		if (*line == '#' || *line == ';')
			return 0;
		return bad("the line begins with white space; values are not continued");
	}
	if (*line == '[') {
		name = line + 1;
		if (name[strcspn(name, "]")] != ']' || name[strcspn(name, "]") + 1])
			return bad("'%s' is not a section", line);
		name[strcspn(name, "]")] = 0;
		return begin_section(cfg, s, name);
	}
	value = strchr(line, '=');
	if (!value)
		return bad("'%.40s' has no '='", line);
	*value++ = 0;
	return set_key(s, trimmed(line), value + strspn(value, " \t"));
}

static int read_file(struct config *cfg)
{
	FILE *f = fopen(cfg->file, "re");
	struct section s = { .keys = NULL };
	char *line = NULL, *from, why[sizeof(error)];
	unsigned int number = 0;
	size_t room = 0;
	ssize_t n;
	int rc = 0;

	while (f && !rc && (errno = 0, (n = getline(&line, &room, f))) > 0) {
		from = line;
		if (!number++ && !strncmp(line, "\xef\xbb\xbf", 3))
			from += 3;
		rc = read_line(cfg, &s, from, (size_t)n - (size_t)(from - line));
	}
	if (rc) {
		memcpy(why, error, sizeof(why));
		*error = 0;
		bad("%.300s: line %u: %.600s", cfg->file, number, why);
	} else if (errno) {
		rc = bad("%s: %s", cfg->file, strerror(errno));
	}
	free(line);
	if (f)
		fclose(f);
	return rc;
}

/* The token of a file is its only line. */
static int read_token(struct config *cfg, unsigned int which)
{
	char **token = &cfg->token[which], *file = cfg->token_file[which];
	char text[TOKEN_MAX + 3] = "";
	const char *p;
	FILE *f;

	if (file) {
		if (*token)
			return bad("%stoken and %stoken_file exclude each other",
				   which ? "admin_" : "", which ? "admin_" : "");
		f = fopen(file, "re");
		if (!f || (!fgets(text, sizeof(text), f) && ferror(f))) {
			bad("%s: %s", file, strerror(errno));
			if (f)
				fclose(f);
			return STATUS_USAGE;
		}
		if (fgetc(f) != EOF)
			strcpy(text, " ");
		fclose(f);
		if (!set_text(token, trimmed(text)))
			return bad("out of memory");
	}
	for (p = *token; p && *p > ' ' && *p < 0x7f; p++)
		;
	/* what no header could have would refuse all requests */
	if (*token && (!**token || *p || strlen(*token) > TOKEN_MAX))
		return bad("%s%sthe token has to be one word of 1 to %d visible ASCII characters",
			   file ? file : "", file ? ": " : "",
			   TOKEN_MAX);
	return 0;
}

/* The backend of all models, whatever the file says. */
static int backend_option(struct config *cfg)
{
	const struct key key = { "backend", BACKEND, MODEL(backend), 0, 0 };
	unsigned int i;

	if (!set(&key, &cfg->model, optarg))
		return bad("'%s' is not good for --backend", optarg);
	for (i = 0; i < cfg->nnamed; i++)
		cfg->named[i].conf.backend = cfg->model.backend;
	return 0;
}

static int option(struct config *cfg, int c)
{
	static const char *const key_of[] = { ['r'] = "repository",
					      ['H'] = "host",
					      ['p'] = "port",
					      ['g'] = "grpc_port",
					      ['i'] = "io_threads",
					      ['w'] = "workers",
					      ['o'] = "onnxruntime",
					      ['a'] = "admin",
					      ['y'] = "ready" };
	size_t i;

	if (c == 'b')
		return backend_option(cfg);

	for (i = 0; i < COUNT(server_keys); i++)
		if (!strcmp(server_keys[i].name, key_of[c])) {
			if (set(&server_keys[i], cfg, optarg))
				return 0;
			return bad("'%s' is not good for --%s", optarg,
				   c == 'i' ? "io-threads" : c == 'g' ? "grpc-port" : key_of[c]);
		}
	return STATUS_USAGE;
}

static int check_model(const struct model_conf *m, const char *name)
{
	if (!conf_good(m))
		return bad("[model%s%s]: a preferred batch is larger than max_batch",
			   *name ? " " : "", name);
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
		return bad("takes options only, not %s", argv[optind]);
	rc = cfg->file ? read_file(cfg) : 0;
	optind = 1;
	while (!rc && (c = getopt_long(argc, argv, "r:c:H:p:g:i:w:h", long_options, NULL)) != -1)
		rc = c == 'c' ? 0 : option(cfg, c);
	if (rc)
		return rc;
	if (!cfg->repository)
		return bad("--repository is missing");
	if (cfg->grpc_port == GRPC_DEFAULT)
		cfg->grpc_port = cfg->port ? 8001 : 0;
	for (i = 0; !rc && i < TOKENS; i++)
		rc = read_token(cfg, i);
	if (!rc && cfg->token[TOKEN_ADMIN] && !cfg->admin)
		rc = bad("an admin_token needs --admin");
	if (!rc)
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

	cfg->free_fd = INT_MAX;
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
	/* some are left for the administrator, and for files */
	if (rl.rlim_cur < INT_MAX)
		cfg->free_fd = (int)(rl.rlim_cur - (rl.rlim_cur < 4 * FREE_FDS ?
						    rl.rlim_cur / 4 : FREE_FDS));
}

static int defaults(struct config *cfg)
{
	*cfg = (struct config){ .port = 8000, .grpc_port = GRPC_DEFAULT, .loops = 1,
		.max_connections = 10000, .max_header = 16384, .max_body = 64u << 20,
		.max_memory = 1u << 30, .slot_memory = 48u << 20, .slot_idle_ns = 10000000000u,
		.model_memory = (uint64_t)4 << 30, .idle_ns = 60000000000u, .read_ns = 30000000000u,
		.write_ns = 30000000000u, .drain_ns = 30000000000u, .grace_ns = 1000000000u,
		.model = { .max_batch = 8, .queue_requests = 1000, .queue_bytes = 256u << 20,
			   .slot_bytes = (uint64_t)4 << 30, .weight = 1, .nversions = 1 } };
	return set_text(&cfg->host, "127.0.0.1") ? 0 : STATUS_FAILED;
}

void config_free(struct config *cfg)
{
	unsigned int i;

	free(cfg->repository);
	free(cfg->host);
	free(cfg->admin);
	for (i = 0; i < TOKENS; i++) {
		free(cfg->token[i]);
		free(cfg->token_file[i]);
	}
	free(cfg->onnxruntime);
	free(cfg->file);
	free(cfg->named);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* The key that cannot be changed while the server runs, or NULL. */
static const char *fixed(const struct config *a, const struct config *b)
{
	return !same_text(a->repository, b->repository) ? "repository" :
		!same_text(a->host, b->host) ? "host" :
		!same_text(a->admin, b->admin) ? "admin" :
		a->control != b->control ? "control" :
		!same_text(a->onnxruntime, b->onnxruntime) ? "onnxruntime" :
		b->port && a->port != b->port ? "port" :
		b->grpc_port && a->grpc_port != b->grpc_port ? "grpc_port" :
		a->loops != b->loops ? "io_threads" :
		b->workers && a->workers != b->workers ? "workers" :
		a->max_header != b->max_header ? "max_header" : NULL;
}

int config_reload(struct config *cfg, int argc, char **argv, char *token[TOKENS])
{
	const char *key = NULL;
	struct config new;
	int rc;

	*error = 0;
	rc = defaults(&new) || parse(&new, argc, argv) ? -EINVAL : 0;
	if (!rc)
		limit_connections(&new);
	key = rc ? NULL : fixed(cfg, &new);
	if (rc || key) {
		if (key)
			bad("%s cannot be changed without a restart", key);
		log_line("error", "config", "error", *error ? error : "out of memory", NULL);
		config_free(&new);
		return -EINVAL;
	}
	store_relaxed(&cfg->max_connections, new.max_connections);
	store_relaxed(&cfg->max_body, new.max_body);
	store_relaxed(&cfg->access_log, new.access_log);
	store_relaxed(&cfg->max_memory, new.max_memory);
	store_relaxed(&cfg->slot_memory, new.slot_memory);
	store_relaxed(&cfg->slot_idle_ns, new.slot_idle_ns);
	serve_model_limit(new.model_memory);
	store_relaxed(&cfg->idle_ns, new.idle_ns);
	store_relaxed(&cfg->read_ns, new.read_ns);
	store_relaxed(&cfg->write_ns, new.write_ns);
	/* the main thread alone has these */
	cfg->grace_ns = new.grace_ns;
	cfg->drain_ns = new.drain_ns;
	cfg->ready_any = new.ready_any;
	cfg->model = new.model;
	free(cfg->named);
	cfg->named = new.named;
	cfg->nnamed = new.nnamed;
	new.named = NULL;
	memcpy(token, cfg->token, sizeof(cfg->token));
	memcpy(cfg->token, new.token, sizeof(cfg->token));
	memset(new.token, 0, sizeof(new.token));
	config_free(&new);
	log_line("info", "config", "file", cfg->file ? cfg->file : "", NULL);
	return 0;
}

int cmd_serve(int argc, char **argv)
{
	struct server *sv = calloc(1, sizeof(*sv));
	int rc;

	if (!sv) {
		fprintf(stderr, "%s: out of memory\n", SERVE_SELF);
		return STATUS_FAILED;
	}
	/* For pawl top.  A server that cannot be observed serves. */
	pawl_publish(true);
	sv->argc = argc;
	sv->argv = argv;
	rc = defaults(&sv->cfg);
	if (!rc)
		rc = parse(&sv->cfg, argc, argv);
	if (rc < 0) {
		fputs(help_text, stdout);
		rc = STATUS_OK;
	} else if (!rc) {
		limit_connections(&sv->cfg);
		serve_onnxruntime(sv->cfg.onnxruntime);
		rc = serve_run(sv) ? STATUS_FAILED : STATUS_OK;
	} else if (*error) {
		fprintf(stderr, "%s: %s\n", SERVE_SELF, error);
	}
	config_free(&sv->cfg);
	free(sv);
	return rc;
}
