// SPDX-License-Identifier: Apache-2.0
/* pawl load: options, and the order of its steps. */

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tools/pawl/cmd.h>
#include "load.h"

#define GRPC_CONNECTIONS 10000u

static const char help_text[] =
"Usage: pawl load [OPTION]... --model=NAME\n"
"Measure the latency of a server of the Open Inference Protocol (KServe v2) over HTTP/1.1\n"
"or gRPC.\n"
"\n"
"What is sent:\n"
"  -u, --url=[grpc://]HOST[:PORT]\n"
"                            the server (127.0.0.1:8000, or port 8001 with grpc://)\n"
"  -m, --model=NAME[/VERSION][=SHARE]\n"
"                            the model; several share the requests by SHARE (1)\n"
"  -b, --batch=N             the first dimension of the inputs, where it is variable (1)\n"
"  -s, --shape=NAME:D,D      dimensions of an input\n"
"  -i, --input=FILE          values: {\"data\": [{\"NAME\": [...]}, ...]}; entries take turns\n"
"  -z, --zero                all values are 0; the default is random values\n"
"  -S, --seed=N              the seed of random values and arrivals (1)\n"
"  -j, --json                tensors as JSON, instead of binary\n"
"  -T, --timeout=MS          the request parameter timeout\n"
"  -P, --priority=N          the request parameter priority\n"
"  -H, --header=LINE         a further header, such as 'Authorization: Bearer ...'\n"
"\n"
"When:\n"
"  -r, --rate=N[,N]...       open loop: requests per second, a run for each N\n"
"  -a, --arrivals=KIND       open loop: poisson or constant (poisson)\n"
"  -c, --concurrency=N[,N]...\n"
"                            closed loop: requests in flight, a run for each N (1)\n"
"  -d, --duration=S          the measured time of a run (10)\n"
"  -n, --requests=N          measure N requests instead of a time\n"
"  -w, --warmup=S            the time before, with the same load, not measured (1)\n"
"  -W, --wait=S              how long a request may wait for its answer (30)\n"
"  -C, --connections=N       the most connections of an open loop (4096), or of gRPC (16)\n"
"  -t, --threads=N           threads of the client (1)\n"
"\n"
"What is reported:\n"
"  -l, --limit=MS            later answers do not count as goodput\n"
"  -o, --output-json=FILE    write the results as JSON; -: to standard output, without text\n"
"  -g, --hgrm=PREFIX         write percentiles of each run to PREFIX-N.hgrm\n"
"  -k, --check               fail if a request failed or has no answer\n"
"  -h, --help                print this\n"
"\n"
"Times may have a unit: us, ms or s.  pawl-load(1) explains the report.\n"
"SIGINT and SIGTERM end the run, and the report has what was measured so far.\n"
"Exit status: 0: measured; 1: no request was answered, a signal ended the run, or, with\n"
"--check, a request failed; 2: the command line is invalid.\n";

static const struct option long_options[] = {
	{ "url", required_argument, NULL, 'u' },
	{ "model", required_argument, NULL, 'm' },
	{ "batch", required_argument, NULL, 'b' },
	{ "shape", required_argument, NULL, 's' },
	{ "input", required_argument, NULL, 'i' },
	{ "zero", no_argument, NULL, 'z' },
	{ "seed", required_argument, NULL, 'S' },
	{ "json", no_argument, NULL, 'j' },
	{ "timeout", required_argument, NULL, 'T' },
	{ "priority", required_argument, NULL, 'P' },
	{ "header", required_argument, NULL, 'H' },
	{ "rate", required_argument, NULL, 'r' },
	{ "arrivals", required_argument, NULL, 'a' },
	{ "concurrency", required_argument, NULL, 'c' },
	{ "duration", required_argument, NULL, 'd' },
	{ "requests", required_argument, NULL, 'n' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "wait", required_argument, NULL, 'W' },
	{ "connections", required_argument, NULL, 'C' },
	{ "threads", required_argument, NULL, 't' },
	{ "limit", required_argument, NULL, 'l' },
	{ "output-json", required_argument, NULL, 'o' },
	{ "hgrm", required_argument, NULL, 'g' },
	{ "check", no_argument, NULL, 'k' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* --- values of options ------------------------------------------------------------ */

static bool parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *v)
{
	char *end;

	errno = 0;
	*v = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *v >= min && *v <= max;
}

/* Parse a time of up to a day; unit applies if the text names none. */
static bool parse_time(const char *text, double unit, bool zero, uint64_t *ns)
{
	char *end;
	double v = strtod(text, &end);

	if (!strcmp(end, "us"))
		unit = 1e3;
	else if (!strcmp(end, "ms"))
		unit = 1e6;
	else if (!strcmp(end, "s"))
		unit = 1e9;
	else if (*end)
		return false;
	if (end == text || !(v >= 0 && v * unit <= 86400e9))
		return false;
	*ns = (uint64_t)(v * unit);
	return *ns || (zero && v == 0);
}

/* HOST, HOST:PORT, [ADDRESS]:PORT, each also with http:// or grpc:// before it. */
static bool parse_url(struct options *o, const char *text)
{
	const char *host = text, *end, *port = "8000";
	uint64_t number;
	size_t n;

	o->grpc = !strncmp(host, "grpc://", 7);
	if (o->grpc)
		port = "8001";
	if (o->grpc || !strncmp(host, "http://", 7))
		host += 7;
	n = strcspn(host, "/");
	if (host[n] && host[n + 1])
		return false;
	if (n >= sizeof(o->host))
		return false;
	memcpy(o->host, host, n);
	o->host[n] = 0;
	snprintf(o->authority, sizeof(o->authority), "%s", o->host);
	end = *o->host == '[' ? strchr(o->host, ']') : o->host + strcspn(o->host, ":");
	if (!end)
		return false;
	if (*end == ']') {
		n = (size_t)(end - o->host);
		port = end[1] == ':' ? end + 2 : end[1] ? "" : port;
		snprintf(o->port, sizeof(o->port), "%.15s", port);
		memmove(o->host, o->host + 1, n);
		o->host[n - 1] = 0;
	} else {
		if (*end)
			port = end + 1;
		snprintf(o->port, sizeof(o->port), "%.15s", port);
		o->host[end - o->host] = 0;
	}
	return *o->host && parse_uint(o->port, 1, 65535, &number);
}

static bool parse_model(struct options *o, const char *text)
{
	struct model *m = &o->models[o->nmodels];
	char *name = strdup(text), *version, *share;
	const char *p;

	if (!name || o->nmodels == MAX_MODELS) {
		free(name);
		return false;
	}
	for (p = name; *p > ' ' && *p < 0x7f && !strchr("?#%", *p); p++)
		;
	m->name = name;
	m->share = 1;
	o->nmodels++;
	share = strchr(name, '=');
	if (share) {
		*share++ = 0;
		m->share = strtod(share, &version);
		if (version == share || *version)
			return false;
	}
	version = strchr(name, '/');
	if (version) {
		*version++ = 0;
		m->version = strdup(version);
		if (!m->version || !*m->version)
			return false;
	}
	return !*p && *name && m->share > 0 && m->share <= 1e6;
}

static bool parse_shape(struct options *o, const char *text)
{
	struct shape_arg *s = &o->shapes[o->nshapes];
	const char *p = strrchr(text, ':');
	char *end;

	if (!p || p == text || o->nshapes == MAX_SHAPES)
		return false;
	s->name = text;
	s->name_len = (size_t)(p - text);
	do {
		p++;
		errno = 0;
		if (s->rank == MAX_RANK || *p < '0' || *p > '9')
			return false;
		s->dims[s->rank++] = strtoll(p, &end, 10);
		p = end;
	} while (*p == ',' && !errno);
	o->nshapes++;
	return !*p && !errno;
}

static bool parse_steps(struct options *o, const char *text, bool rates)
{
	double v, least = rates ? 1e-3 : 1, most = rates ? 1e7 : 100000;
	char *end;

	/* one list */
	if (o->nsteps)
		return false;
	do {
		v = strtod(text, &end);
		if (end == text || (*end && *end != ',') || o->nsteps == MAX_STEPS ||
		    !(v >= least && v <= most) || (!rates && v != floor(v)))
			return false;
		if (rates)
			o->steps[o->nsteps++].rate = v;
		else
			o->steps[o->nsteps++].concurrency = (unsigned int)v;
		text = end + 1;
	} while (*end);
	return true;
}

static bool parse_header(struct options *o, const char *text)
{
	const char *p;
	char *all;

	for (p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return false;
	p = strchr(text, ':');
	if (!p || p == text ||
	    asprintf(&all, "%s%s\r\n", o->headers ? o->headers : "", text) < 0)
		return false;
	free(o->headers);
	o->headers = all;
	return true;
}

static bool set(struct options *o, int c, const char *arg)
{
	uint64_t v = 0;
	bool ok = true;

	switch (c) {
	case 'u': return parse_url(o, arg);
	case 'm': return parse_model(o, arg);
	case 'b': return parse_uint(arg, 1, 1 << 20, &o->batch);
	case 's': return parse_shape(o, arg);
	case 'i': o->input = arg; break;
	case 'z': o->zero = true; break;
	case 'S': return parse_uint(arg, 0, UINT64_MAX, &o->seed);
	case 'j': o->json = true; break;
	case 'T':
		ok = parse_time(arg, 1e6, false, &v);
		o->timeout_us = v / 1000;
		return ok && o->timeout_us;
	case 'P': return parse_uint(arg, 1, UINT32_MAX, &o->priority);
	case 'H': return parse_header(o, arg);
	case 'r': return parse_steps(o, arg, true);
	case 'a':
		o->poisson = !strcmp(arg, "poisson");
		return o->poisson || !strcmp(arg, "constant");
	case 'c': return parse_steps(o, arg, false);
	case 'd': return parse_time(arg, 1e9, false, &o->duration_ns);
	case 'n': return parse_uint(arg, 1, (uint64_t)1 << 40, &o->requests);
	case 'w': return parse_time(arg, 1e9, true, &o->warmup_ns);
	case 'W': return parse_time(arg, 1e9, false, &o->wait_ns);
	case 'C':
		ok = parse_uint(arg, 1, 1000000, &v);
		o->connections = (unsigned int)v;
		return ok;
	case 't':
		ok = parse_uint(arg, 1, MAX_THREADS, &v);
		o->threads = (unsigned int)v;
		return ok;
	case 'l': return parse_time(arg, 1e6, false, &o->limit_ns);
	case 'o': o->json_out = arg; break;
	case 'g': o->hgrm = arg; break;
	case 'k': o->check = true; break;
	}
	return ok;
}

/* --- the command --------------------------------------------------------------------- */

static int usage(const char *what, const char *detail)
{
	fprintf(stderr, "%s: %s%s\n", LOAD_SELF, what, detail);
	return STATUS_USAGE;
}

static unsigned int connections(const struct options *o, const struct step *s)
{
	/* only connections of gRPC carry several requests */
	if (s->rate || (o->grpc && o->connections < s->concurrency))
		return o->connections;
	return s->concurrency;
}

/* Each connection needs an open file. */
static int raise_files(const struct options *o)
{
	struct rlimit l;
	unsigned int i, most = 0;
	char text[32];

	for (i = 0; i < o->nsteps; i++) {
		unsigned int n = connections(o, &o->steps[i]);

		if (n > most)
			most = n;
	}
	if (getrlimit(RLIMIT_NOFILE, &l))
		return STATUS_OK;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_cur >= (rlim_t)most + o->threads + 16)
		return STATUS_OK;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)l.rlim_cur);
	return usage("too many connections: the limit of open files (ulimit -n) is ", text);
}

static bool same_model(const struct model *a, const struct model *b)
{
	return !strcmp(a->name, b->name) && !strcmp(a->version ? a->version : "",
						    b->version ? b->version : "");
}

static int check_options(struct options *o)
{
	unsigned int i, k;

	if (!o->nmodels)
		return usage("--model is missing", "");
	if (o->input && o->nmodels > 1)
		return usage("--input needs a single model", "");
	for (i = 1; i < o->nmodels; i++)
		for (k = 0; k < i; k++)
			if (same_model(&o->models[i], &o->models[k]))
				return usage("a model is given twice: ", o->models[i].name);
	for (i = 1; o->hgrm && i < o->nsteps; i++)
		for (k = 0; k < i; k++)
			if (o->steps[i].rate == o->steps[k].rate &&
			    o->steps[i].concurrency == o->steps[k].concurrency)
				return usage("two runs would write the same file of --hgrm", "");
	if (o->input && o->zero)
		return usage("--zero and --input exclude each other", "");
	if (o->grpc && o->json)
		return usage("--json is for HTTP only", "");
	/* each has room for a hundred calls, which would use up the memory of the machine */
	if (o->grpc && o->connections > GRPC_CONNECTIONS)
		return usage("too many connections for gRPC: the limit is ", "10000");
	if (!o->connections)
		o->connections = o->grpc ? 16 : 4096;
	if (!o->nsteps)
		o->steps[o->nsteps++].concurrency = 1;
	for (i = 0; i < o->nsteps; i++)
		if (connections(o, &o->steps[i]) < o->threads)
			return usage("there are fewer connections than threads", "");
	return raise_files(o);
}

/* The exit status of finished runs. */
static int judge(const struct options *o, const struct result *r)
{
	struct tally y;
	bool bad = false;
	unsigned int i;

	for (i = 0; i < o->nsteps; i++) {
		load_tally_sum(o, &r[i], &y);
		if (!(y.good + y.late)) {
			fprintf(stderr, "%s: no request of a run was answered\n", LOAD_SELF);
			return STATUS_FAILED;
		}
		bad = bad || y.failed + y.lost + y.timed_out;
	}
	return o->check && bad ? STATUS_FAILED : STATUS_OK;
}

/* --- signals ------------------------------------------------------------------------- */

static const int numbers[] = { SIGINT, SIGTERM };
static int end_fd;			/* for the handler */

static void handler(int number)
{
	const uint64_t one = 1;
	int saved = errno;

	(void)number;
	(void)!write(end_fd, &one, sizeof(one));
	errno = saved;
}

/* The first signal ends the run, unless it is ignored; the second one ends the process. */
static int catch_signals(struct options *o, struct sigaction *before)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART | SA_RESETHAND };
	unsigned int i;

	end_fd = o->end_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (o->end_fd < 0) {
		perror(LOAD_SELF);
		return -1;
	}
	for (i = 0; i < 2; i++) {
		sigaction(numbers[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
	return 0;
}

static void release_signals(struct options *o, const struct sigaction *before)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		sigaction(numbers[i], &before[i], NULL);
	close(o->end_fd);
}

static int measure(struct options *o)
{
	bool text = !o->json_out || strcmp(o->json_out, "-");
	struct result *r = calloc(o->nsteps, sizeof(*r));
	bool interrupted = false;
	struct sigaction before[2];
	unsigned int i;
	int rc = -1;

	if (!r) {
		fprintf(stderr, "%s: out of memory\n", LOAD_SELF);
		return STATUS_FAILED;
	}
	if (catch_signals(o, before)) {
		free(r);
		return STATUS_FAILED;
	}
	if (text)
		load_report_head(o);
	for (i = 0; i < o->nsteps; i++) {
		rc = load_client_run(o, &o->steps[i], &r[i]);
		if (rc)
			break;
		interrupted = r[i].interrupted;
		if (interrupted)
			o->nsteps = i + 1;	/* the report has no further runs */
		if (text)
			load_report_step(o, &o->steps[i], &r[i]);
		if (o->hgrm && load_report_hgrm(o, &o->steps[i], &r[i]))
			rc = -1;
	}
	release_signals(o, before);
	if (!rc && text && o->nsteps > 1)
		load_report_curve(o, r);
	if (!rc && o->json_out)
		rc = load_report_json(o, r);
	rc = rc ? STATUS_FAILED : judge(o, r);
	if (interrupted)
		rc = STATUS_FAILED;
	free(r);
	return rc;
}

static int parse(struct options *o, int argc, char **argv)
{
	int c, index;
	char text[300];

	optind = 0;
	while (index = -1, (c = getopt_long(argc, argv,
			"u:m:b:s:i:zS:jT:P:H:r:a:c:d:n:w:W:C:t:l:o:g:kh", long_options,
			&index)) != -1) {
		if (c == 'h') {
			fputs(help_text, stdout);
			return -1;
		}
		if (c == '?')
			return STATUS_USAGE;
		if (!set(o, c, optarg)) {
			for (index = 0; long_options[index].val != c; index++)
				;
			snprintf(text, sizeof(text), "'%.200s' is not good for --%s", optarg,
				 long_options[index].name);
			return usage(text, "");
		}
	}
	if (optind < argc)
		return usage("unexpected argument: ", argv[optind]);
	return check_options(o);
}

int cmd_load(int argc, char **argv)
{
	struct options o = {
		.threads = 1, .seed = 1, .duration_ns = 10000000000u,
		.warmup_ns = 1000000000u, .wait_ns = 30000000000u, .poisson = true,
	};
	unsigned int i;
	int rc;

	parse_url(&o, "127.0.0.1");
	rc = parse(&o, argc, argv);
	if (!rc && (load_http_resolve(&o) || (o.grpc && load_grpc_prepare(&o))))
		rc = STATUS_FAILED;
	for (i = 0; !rc && i < o.nmodels; i++)
		if (load_model_prepare(&o, &o.models[i]))
			rc = STATUS_FAILED;
	if (!rc)
		rc = measure(&o);
	for (i = 0; i < o.nmodels; i++)
		load_model_free(&o.models[i]);
	free(o.headers);
	return rc < 0 ? STATUS_OK : rc;
}
