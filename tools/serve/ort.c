// SPDX-License-Identifier: Apache-2.0
/*
 * ort.c - the backend onnxruntime: a model with parts that pawl lacks runs in that library, as
 * one op of the engine.
 *
 * The library is opened by the first load that needs it; pawl is built without it.  Its only
 * symbol is OrtGetApiBase(), which returns a table of functions.  The order of the table never
 * changes, and newer versions add to its end, so struct api declares the entries that are used.
 *
 * A session has one thread by default, the one that calls it: then it has no pool.  Memory of a
 * run comes from malloc() and returns there: the library's arena keeps the memory of its largest
 * run for ever, and its patterns of memory have an entry for each shape that a client chooses.
 *
 * Blocking: a run allocates and takes locks of the library and of the heap
 * (Documentation/serve.md).  A slot owns its values, and has one run at a time; runs of several
 * slots use a session together, as the library permits.
 */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ort.h"

#define API_VERSION	15u		/* the first with get_string_buffer */

/* The library's own types are opaque here. */
struct o_status; struct o_env; struct o_session; struct o_options; struct o_run; struct o_value;
struct o_type; struct o_tensor; struct o_memory; struct o_allocator; struct o_cuda;

typedef void (*log_fn)(void *arg, int severity, const char *category, const char *id,
		       const char *where, const char *message);

#define GAP(from, to) void *gap_##from[(to) - (from)]
struct api {
	GAP(0, 1);
	int (*error_code)(const struct o_status *st);
	const char *(*error_message)(const struct o_status *st);
	GAP(3, 4);
	struct o_status *(*create_env)(log_fn fn, void *arg, int severity, const char *id,
				       struct o_env **out);
	GAP(5, 7);
	struct o_status *(*create_session)(const struct o_env *env, const char *path,
					   const struct o_options *o, struct o_session **out);
	GAP(8, 9);
	struct o_status *(*run)(struct o_session *s, const struct o_run *o,
				const char *const *in_names, const struct o_value *const *in,
				size_t nin, const char *const *out_names, size_t nout,
				struct o_value **out);
	struct o_status *(*create_options)(struct o_options **out);
	GAP(11, 17);
	struct o_status *(*disable_mem_pattern)(struct o_options *o);
	GAP(18, 19);
	struct o_status *(*disable_cpu_mem_arena)(struct o_options *o);
	GAP(20, 22);
	struct o_status *(*set_log_severity)(struct o_options *o, int severity);
	GAP(23, 24);
	struct o_status *(*set_intra_threads)(struct o_options *o, int n);
	struct o_status *(*set_inter_threads)(struct o_options *o, int n);
	GAP(26, 30);
	struct o_status *(*input_count)(const struct o_session *s, size_t *n);
	struct o_status *(*output_count)(const struct o_session *s, size_t *n);
	GAP(32, 33);
	struct o_status *(*input_type)(const struct o_session *s, size_t i, struct o_type **out);
	struct o_status *(*output_type)(const struct o_session *s, size_t i, struct o_type **out);
	GAP(35, 36);
	struct o_status *(*input_name)(const struct o_session *s, size_t i,
				       struct o_allocator *a, char **out);
	struct o_status *(*output_name)(const struct o_session *s, size_t i,
					struct o_allocator *a, char **out);
	GAP(38, 39);
	struct o_status *(*create_run)(struct o_run **out);
	GAP(40, 46);
	struct o_status *(*set_terminate)(struct o_run *o);
	struct o_status *(*unset_terminate)(struct o_run *o);
	struct o_status *(*create_tensor)(struct o_allocator *a, const int64_t *dims, size_t rank,
					  int type, struct o_value **out);
	struct o_status *(*create_tensor_of)(const struct o_memory *m, void *data, size_t bytes,
					     const int64_t *dims, size_t rank, int type,
					     struct o_value **out);
	struct o_status *(*is_tensor)(const struct o_value *v, int *yes);
	struct o_status *(*tensor_data)(struct o_value *v, void **data);
	GAP(52, 53);
	struct o_status *(*strings_bytes)(const struct o_value *v, size_t *bytes);
	struct o_status *(*strings)(const struct o_value *v, void *to, size_t bytes,
				    size_t *offsets, size_t n);
	struct o_status *(*as_tensor)(const struct o_type *t, const struct o_tensor **out);
	struct o_status *(*kind_of)(const struct o_type *t, int *kind);
	GAP(57, 60);
	struct o_status *(*element_type)(const struct o_tensor *t, int *type);
	struct o_status *(*rank_of)(const struct o_tensor *t, size_t *rank);
	struct o_status *(*dims_of)(const struct o_tensor *t, int64_t *dims, size_t rank);
	GAP(63, 65);
	struct o_status *(*tensor_of)(const struct o_value *v, struct o_tensor **out);
	GAP(66, 69);
	struct o_status *(*create_cpu_memory)(int kind, int use, struct o_memory **out);
	GAP(70, 76);
	struct o_status *(*allocator_free)(struct o_allocator *a, void *p);
	GAP(77, 78);
	struct o_status *(*default_allocator)(struct o_allocator **out);
	GAP(79, 93);
	void (*release_status)(struct o_status *st);
	GAP(94, 95);
	void (*release_session)(struct o_session *s);
	void (*release_value)(struct o_value *v);
	void (*release_run)(struct o_run *o);
	void (*release_type)(struct o_type *t);
	void (*release_tensor)(struct o_tensor *t);
	void (*release_options)(struct o_options *o);
	GAP(101, 130);
	struct o_status *(*set_entry)(struct o_options *o, const char *key, const char *value);
	GAP(131, 204);
	struct o_status *(*append_cuda)(struct o_options *o, const struct o_cuda *c);
	struct o_status *(*create_cuda)(struct o_cuda **out);
	struct o_status *(*update_cuda)(struct o_cuda *c, const char *const *keys,
					const char *const *values, size_t n);
	GAP(207, 208);
	void (*release_cuda)(struct o_cuda *c);
	GAP(209, 216);
	struct o_status *(*append_provider)(struct o_options *o, const char *name,
					    const char *const *keys, const char *const *values,
					    size_t n);
	GAP(217, 252);
	struct o_status *(*string_buffer)(struct o_value *v, size_t i, size_t bytes, char **out);
};

#define AT(name, index) \
	_Static_assert(offsetof(struct api, name) == (index) * sizeof(void *), #name)
AT(create_session, 7); AT(set_inter_threads, 25); AT(create_tensor_of, 49); AT(kind_of, 56);
AT(default_allocator, 78); AT(release_options, 100); AT(set_entry, 130); AT(append_cuda, 204);
AT(append_provider, 216); AT(string_buffer, 252);

struct api_base {
	const struct api *(*get)(uint32_t version);
	const char *(*version)(void);
};

enum { ALLOCATOR_DEVICE = 0, MEMORY_DEFAULT = 0, SEVERITY_FATAL = 4, KIND_TENSOR = 1,
       TYPE_STRING = 8, CODE_NOT_IMPLEMENTED = 9 };

/* Set by the first load that finds the library, and then only read. */
static struct {
	const struct api *api;
	struct o_env *env;
	struct o_allocator *allocator;
	struct o_memory *memory;
	char version[32];
} lib;

static const char *where;		/* the path that the user named, or NULL */

struct ort_model {
	struct o_session *session;
	unsigned int nin, nout;
	char *in[MAX_IO], *out[MAX_IO];	/* names */
};

struct ort_slot {
	const struct ort_model *m;
	const struct serve_model *what;
	struct o_run *run;
	struct o_value *in[MAX_IO], *out[MAX_IO];
	char *data[MAX_IO];		/* of the inputs */
	size_t room[MAX_IO], bytes[MAX_IO];
	struct serve_shape shapes[MAX_IO], out_shapes[MAX_IO];
	char *text[MAX_IO];		/* outputs of BYTES */
	const void *out_data[MAX_IO];
	size_t out_bytes[MAX_IO];
	size_t all;			/* bytes of inputs and outputs */
	u32 stopped;			/* A */
	char why[256];
};

void serve_onnxruntime(const char *path)
{
	where = path;
	/* else the environment of the library starts a thread that sends data */
	setenv("ORT_DISABLE_TELEMETRY", "1", 1);
}

/* ---- the library ---------------------------------------------------------- */

/* Errors return as a status; nothing else of the library's log is ours. */
static void no_log(void *arg, int severity, const char *category, const char *id,
		   const char *place, const char *message)
{
	(void)arg;
	(void)severity;
	(void)category;
	(void)id;
	(void)place;
	(void)message;
}

/* Copy the text of a status, in one line, and free it.  Returns a negative errno, or 0. */
static int status(struct o_status *st, char *text, size_t size)
{
	const char *message;
	int rc = -EINVAL;
	size_t i;

	if (!st)
		return 0;
	message = lib.api->error_message(st);
	if (lib.api->error_code(st) == CODE_NOT_IMPLEMENTED)
		rc = -ENOTSUP;
	if (strstr(message, "bad_alloc") || strstr(message, "Failed to allocate memory"))
		rc = -ENOMEM;
	snprintf(text, size, "%s", message);
	for (i = 0; text[i]; i++)
		if ((unsigned char)text[i] < ' ')
			text[i] = ' ';
	lib.api->release_status(st);
	return rc;
}

static void *open_glob(const char *folder, const char *pattern, char *why, size_t size)
{
	char path[4096];
	void *handle = NULL;
	glob_t found;
	size_t i;

	if (snprintf(path, sizeof(path), "%s/%s", folder, pattern) >= (int)sizeof(path) ||
	    glob(path, 0, NULL, &found))
		return NULL;
	for (i = 0; i < found.gl_pathc && !handle; i++) {
		handle = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			snprintf(why, size, "%s", dlerror());
	}
	globfree(&found);
	return handle;
}

static void *open_any(char *why, size_t size)
{
	static const char *const names[] = { "libonnxruntime.so.1", "libonnxruntime.so" };
	/* a folder of libraries, of an unpacked release, of packages, of an environment of Python */
	static const char *const below[] = { "libonnxruntime.so*", "lib/libonnxruntime.so*",
		"capi/libonnxruntime.so*", "onnxruntime/capi/libonnxruntime.so*",
		"lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so*" };
	void *handle = NULL;
	struct stat st;
	size_t i;

	if (!where) {
		for (i = 0; i < 2 && !handle; i++)
			handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			snprintf(why, size, "%s", dlerror());
		return handle;
	}
	if (stat(where, &st)) {
		snprintf(why, size, "%s: %s", where, strerror(errno));
		return NULL;
	}
	if (!S_ISDIR(st.st_mode)) {
		handle = dlopen(where, RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			snprintf(why, size, "%s", dlerror());
		return handle;
	}
	snprintf(why, size, "%s has no libonnxruntime.so", where);
	for (i = 0; i < sizeof(below) / sizeof(below[0]) && !handle; i++)
		handle = open_glob(where, below[i], why, size);
	return handle;
}

static int open_library(char *why, size_t size)
{
	const struct api_base *(*base)(void);
	const struct api *api;
	struct o_status *st;
	void *handle;

	if (lib.env)
		return 0;
	handle = open_any(why, size);
	if (!handle)
		return -ENOENT;
	*(void **)(void *)&base = dlsym(handle, "OrtGetApiBase");
	if (!base) {
		snprintf(why, size, "%s", dlerror());
		dlclose(handle);
		return -ENOENT;
	}
	api = base()->get(API_VERSION);
	if (!api) {
		snprintf(why, size, "version %.40s is too old: 1.%u or newer is needed",
			 base()->version(), API_VERSION);
		dlclose(handle);
		return -ENOENT;
	}
	lib.api = api;
	snprintf(lib.version, sizeof(lib.version), "%s", base()->version());
	st = api->create_env(no_log, NULL, SEVERITY_FATAL, "pawl", &lib.env);
	if (!st)
		st = api->default_allocator(&lib.allocator);
	if (!st)
		st = api->create_cpu_memory(ALLOCATOR_DEVICE, MEMORY_DEFAULT, &lib.memory);
	if (st) {
		lib.env = NULL;
		return status(st, why, size);
	}
	return 0;
}

/* ---- a model -------------------------------------------------------------- */

#define MAX_OPTIONS 32

/* NAME [KEY=VALUE]..., separated by blanks. */
static struct o_status *add_provider(struct o_options *o, char *text)
{
	const char *keys[MAX_OPTIONS], *values[MAX_OPTIONS], *name;
	struct o_status *st;
	struct o_cuda *cuda;
	char *save, *p;
	size_t n = 0;

	name = strtok_r(text, " \t", &save);
	if (!name)
		return NULL;
	while ((p = strtok_r(NULL, " \t", &save)) && n < MAX_OPTIONS) {
		keys[n] = p;
		p += strcspn(p, "=");
		if (*p)
			*p++ = 0;
		values[n++] = p;
	}
	if (strcmp(name, "CUDA"))
		return lib.api->append_provider(o, name, keys, values, n);
	st = lib.api->create_cuda(&cuda);
	if (st)
		return st;
	st = n ? lib.api->update_cuda(cuda, keys, values, n) : NULL;
	if (!st)
		st = lib.api->append_cuda(o, cuda);
	lib.api->release_cuda(cuda);
	return st;
}

static struct o_status *open_session(struct ort_model *m, const char *path,
				     const struct serve_how *how)
{
	const struct api *api = lib.api;
	struct o_options *o = NULL;
	char provider[SERVE_PROVIDER];
	struct o_status *st;

	st = api->create_options(&o);
	if (!st)
		st = api->set_intra_threads(o, how->threads ? (int)how->threads : 1);
	if (!st)
		st = api->set_inter_threads(o, 1);
	if (!st)
		st = api->disable_cpu_mem_arena(o);
	if (!st)
		st = api->disable_mem_pattern(o);
	if (!st)
		st = api->set_log_severity(o, SEVERITY_FATAL);
	if (!st)
		st = api->set_entry(o, "session.intra_op.allow_spinning", "0");
	if (!st && how->provider) {
		snprintf(provider, sizeof(provider), "%s", how->provider);
		st = add_provider(o, provider);
	}
	if (!st)
		st = api->create_session(lib.env, path, o, &m->session);
	if (o)
		api->release_options(o);
	return st;
}

/* Whether the file states the shape; the library does not tell that from a single number. */
static bool stated(const struct graph *native, const char *name, bool output)
{
	unsigned int i, n = output ? native->m.noutputs : native->m.ninputs;
	const struct serve_io *io = output ? native->out_io : native->in_io;

	for (i = 0; i < n; i++)
		if (io[i].name && !strcmp(io[i].name, name))
			return output ? !native->unstated[i] : !io[i].any;
	return true;
}

static struct o_status *describe(struct serve_io *io, struct o_type *t, int *kind, int *type,
				 size_t *rank)
{
	const struct o_tensor *tensor;
	struct o_status *st = lib.api->kind_of(t, kind);

	if (st || *kind != KIND_TENSOR)
		return st;
	st = lib.api->as_tensor(t, &tensor);
	if (!st)
		st = lib.api->element_type(tensor, type);
	if (!st)
		st = lib.api->rank_of(tensor, rank);
	if (!st && *rank <= SERVE_RANK)
		st = lib.api->dims_of(tensor, io->dims, *rank);
	return st;
}

/* Returns 0, 1 if the output is left out, or a negative errno. */
static int read_io(struct graph *g, const struct graph *native, size_t i, bool output)
{
	struct ort_model *m = g->ort;
	struct serve_io *io = output ? &g->out_io[m->nout] : &g->in_io[m->nin];
	char **name = output ? &m->out[m->nout] : &m->in[m->nin], *text = NULL, why[512];
	int kind = 0, type = 0, rc;
	const struct api *api = lib.api;
	struct o_type *t = NULL;
	struct o_status *st;
	size_t rank = 0;
	unsigned int k;

	st = (output ? api->output_name : api->input_name)(m->session, i, lib.allocator, &text);
	if (!st) {
		*name = strdup(text);
		st = api->allocator_free(lib.allocator, text);
	}
	if (!st && !*name)
		return refuse(g, -ENOMEM, "no memory");
	if (!st)
		st = (output ? api->output_type : api->input_type)(m->session, i, &t);
	if (!st)
		st = describe(io, t, &kind, &type, &rank);
	if (t)
		api->release_type(t);
	rc = status(st, why, sizeof(why));
	if (rc)
		return refuse(g, rc, "onnxruntime: %s", why);
	if (kind != KIND_TENSOR && output) {
		/* such as the probabilities of classifiers, as a list of maps */
		free(*name);
		*name = NULL;
		return 1;
	}
	if (kind != KIND_TENSOR)
		return refuse(g, -ENOTSUP, "input '%s' is not a tensor", *name);
	if (rank > SERVE_RANK)
		return refuse(g, -ENOTSUP, "'%s' has %zu dimensions", *name, rank);
	io->name = *name;
	io->type = SERVE_BYTES;
	if (type != TYPE_STRING && onnx_type(type, &io->type))
		return refuse(g, -ENOTSUP, "'%s' has type %d, which the protocol lacks", *name,
			      type);
	io->rank = (unsigned int)rank;
	for (k = 0; k < io->rank; k++)
		if (io->dims[k] < 0)
			io->dims[k] = -1;
	if (!rank && !stated(native, *name, output)) {
		io->any = true;
		io->rank = 1;
		io->dims[0] = -1;
	}
	return 0;
}

int ort_load(struct graph *g, const struct graph *native, const struct serve_how *how)
{
	struct serve_model *what = &g->m;
	char why[1024];
	size_t nin, nout, i;
	struct o_status *st;
	int rc;

	rc = open_library(why, sizeof(why));
	if (rc)
		return refuse(g, rc, "onnxruntime: %s", why);
	g->ort = calloc(1, sizeof(*g->ort));
	if (!g->ort)
		return refuse(g, -ENOMEM, "no memory");
	st = open_session(g->ort, g->file, how);
	if (!st)
		st = lib.api->input_count(g->ort->session, &nin);
	if (!st)
		st = lib.api->output_count(g->ort->session, &nout);
	rc = status(st, why, sizeof(why));
	if (rc)
		return refuse(g, rc, "onnxruntime %s: %s", lib.version, why);
	for (i = 0; i < nin + nout; i++) {
		bool output = i >= nin;

		if ((output ? g->ort->nout : g->ort->nin) == MAX_IO)
			return refuse(g, -ENOTSUP, "more than %d inputs or outputs", MAX_IO);
		rc = read_io(g, native, output ? i - nin : i, output);
		if (rc < 0)
			return rc;
		if (!rc && output)
			g->ort->nout++;
		else if (!rc)
			g->ort->nin++;
	}
	what->ninputs = g->ort->nin;
	what->noutputs = g->ort->nout;
	if (!what->noutputs)
		return refuse(g, -ENOTSUP, "no output is a tensor");
	what->inputs = g->in_io;
	what->outputs = g->out_io;
	what->platform = "onnxruntime_onnx";
	what->backend = "onnxruntime";
	/* Nobody but its owner knows what such a model does with rows. */
	what->batch = how->rows_apart && what->ninputs;
	for (i = 0; i < what->ninputs; i++)
		what->batch = what->batch && g->in_io[i].rank && g->in_io[i].dims[0] == -1;
	for (i = 0; i < what->noutputs; i++)
		what->batch = what->batch && g->out_io[i].rank && g->out_io[i].dims[0] == -1;
	return 0;
}

void ort_free(struct ort_model *m)
{
	unsigned int i;

	if (!m)
		return;
	if (m->session)
		lib.api->release_session(m->session);
	for (i = 0; i < MAX_IO; i++) {
		free(m->in[i]);
		free(m->out[i]);
	}
	free(m);
}

/* ---- slots ---------------------------------------------------------------- */

static int onnx_of(enum serve_type type)
{
	enum serve_type t;
	int i;

	for (i = 1; i < 16; i++)
		if (!onnx_type(i, &t) && t == type)
			return i;
	return TYPE_STRING;
}

/* The bytes of an input; for BYTES, those of the lengths alone. */
static int input_bytes(const struct serve_io *io, const struct serve_shape *sh, size_t *bytes)
{
	bool ok = io->any || sh->rank == io->rank;
	unsigned int k;

	for (k = 0; ok && k < sh->rank; k++)
		ok = sh->dims[k] >= 0 &&
			(io->any || io->dims[k] < 0 || io->dims[k] == sh->dims[k]);
	return ok ? dims_bytes(io->type == SERVE_BYTES ? SERVE_UINT32 : io->type, sh->rank,
			       sh->dims, bytes) : -EINVAL;
}

int ort_plan(struct ort_model *m, const struct serve_model *what,
	     const struct serve_shape *shapes, size_t limit, struct ort_slot **out, char *err,
	     size_t errsize)
{
	struct ort_slot *s = calloc(1, sizeof(*s));
	struct o_status *st = NULL;
	const struct serve_io *io;
	char why[256];
	unsigned int i;
	int rc = 0;

	*out = s;
	if (!s)
		return graph_err(err, errsize, -ENOMEM, "no memory for a slot");
	s->m = m;
	s->what = what;
	for (i = 0; i < what->ninputs && !st; i++) {
		io = &what->inputs[i];
		s->shapes[i] = shapes[i];
		if (input_bytes(io, &shapes[i], &s->bytes[i]))
			return graph_err(err, errsize, -EINVAL,
					 "the shape of input '%s' is not the model's", io->name);
		s->all += s->bytes[i];
		if (s->bytes[i] > limit || s->all > limit)
			return graph_err(err, errsize, -EINVAL,
					 "a run with these shapes needs more than %zu bytes",
					 limit);
		if (!ort_input(s, i, s->bytes[i]))
			return graph_err(err, errsize, -ENOMEM, "no memory for a slot");
		if (io->type == SERVE_BYTES)
			st = lib.api->create_tensor(lib.allocator, shapes[i].dims, shapes[i].rank,
						    TYPE_STRING, &s->in[i]);
		else
			st = lib.api->create_tensor_of(lib.memory, s->data[i], s->bytes[i],
						       shapes[i].dims, shapes[i].rank,
						       onnx_of(io->type), &s->in[i]);
	}
	/* Rows that may be run together are rows of the outputs, until a run shows otherwise. */
	for (i = 0; i < what->noutputs; i++)
		if (what->batch) {
			s->out_shapes[i].rank = 1;
			s->out_shapes[i].dims[0] = shapes[0].dims[0];
		}
	if (!st)
		st = lib.api->create_run(&s->run);
	rc = status(st, why, sizeof(why));
	return rc ? graph_err(err, errsize, rc, "onnxruntime: %s", why) : 0;
}

static void drop_outputs(struct ort_slot *s)
{
	unsigned int i;

	for (i = 0; i < s->what->noutputs; i++) {
		if (s->out[i])
			lib.api->release_value(s->out[i]);
		s->out[i] = NULL;
		free(s->text[i]);
		s->text[i] = NULL;
		s->all -= s->out_bytes[i];
		s->out_bytes[i] = 0;
		s->out_data[i] = NULL;
	}
}

void ort_destroy(struct ort_slot *s)
{
	unsigned int i;

	if (!s)
		return;
	drop_outputs(s);
	for (i = 0; i < s->what->ninputs; i++) {
		if (s->in[i])
			lib.api->release_value(s->in[i]);
		free(s->data[i]);
	}
	if (s->run)
		lib.api->release_run(s->run);
	free(s);
}

void *ort_input(struct ort_slot *s, unsigned int i, size_t bytes)
{
	char *data;

	if (s->data[i] && bytes <= s->room[i]) {
		s->bytes[i] = bytes;
		return s->data[i];
	}
	/* Only BYTES change: the value of another type has this memory. */
	data = aligned(bytes);
	if (!data)
		return NULL;
	s->all += s->data[i] ? bytes - s->room[i] : 0;
	free(s->data[i]);
	s->data[i] = data;
	s->room[i] = s->bytes[i] = bytes;
	return data;
}

const void *ort_output(const struct ort_slot *s, unsigned int i)
{
	return s->out_data[i];
}

size_t ort_output_bytes(const struct ort_slot *s, unsigned int i)
{
	return s->out_bytes[i];
}

const struct serve_shape *ort_output_shape(const struct ort_slot *s, unsigned int i)
{
	return &s->out_shapes[i];
}

size_t ort_bytes(const struct ort_slot *s)
{
	return s->all;
}

void ort_start(struct ort_slot *s)
{
	if (load_relaxed(&s->stopped))
		lib.api->unset_terminate(s->run);
	store_relaxed(&s->stopped, 0);
}

/* The library reads this between two operators. */
void ort_stop(struct ort_slot *s)
{
	store_relaxed(&s->stopped, 1);
	lib.api->set_terminate(s->run);
}

const char *ort_why(const struct ort_slot *s)
{
	return s->why;
}

/* From the form of the protocol, a length and so many bytes for each, to strings. */
static struct o_status *fill_strings(struct ort_slot *s, unsigned int i)
{
	size_t n = (size_t)count(s->shapes[i].rank, s->shapes[i].dims), k;
	const char *p = s->data[i];
	struct o_status *st = NULL;
	uint32_t len;
	char *to;

	for (k = 0; k < n && !st; k++) {
		memcpy(&len, p, sizeof(len));
		p += sizeof(len);
		st = lib.api->string_buffer(s->in[i], k, len, &to);
		if (!st && len)
			memcpy(to, p, len);
		p += len;
	}
	return st;
}

/* And back.  Returns a negative errno, with the status if the library has failed. */
static int take_strings(struct ort_slot *s, unsigned int i, size_t n, struct o_status **st)
{
	size_t bytes, *offsets, k;
	char *all, *to;
	uint32_t len;

	*st = lib.api->strings_bytes(s->out[i], &bytes);
	if (*st)
		return -EINVAL;
	offsets = malloc((n + 1) * sizeof(*offsets));
	all = malloc(bytes + 1);
	to = s->text[i] = malloc(bytes + n * sizeof(len) + 1);
	if (offsets && all && to)
		*st = lib.api->strings(s->out[i], all, bytes, offsets, n);
	for (k = 0; offsets && all && to && !*st && k < n; k++) {
		len = (uint32_t)((k + 1 < n ? offsets[k + 1] : bytes) - offsets[k]);
		memcpy(to, &len, sizeof(len));
		to = mempcpy(to + sizeof(len), all + offsets[k], len);
	}
	if (offsets && all && to && !*st) {
		s->out_data[i] = s->text[i];
		s->out_bytes[i] = (size_t)(to - s->text[i]);
	}
	k = offsets && all && to;
	free(offsets);
	free(all);
	return k ? *st ? -EINVAL : 0 : -ENOMEM;
}

/* The shape and the data of an output. */
static int take_output(struct ort_slot *s, unsigned int i, struct o_status **st)
{
	struct serve_shape *sh = &s->out_shapes[i];
	const struct serve_io *io = &s->what->outputs[i];
	struct o_tensor *t = NULL;
	int yes = 0, type = 0;
	size_t rank = 0;
	void *data;

	*st = lib.api->is_tensor(s->out[i], &yes);
	if (!*st && yes)
		*st = lib.api->tensor_of(s->out[i], &t);
	if (!*st && t)
		*st = lib.api->element_type(t, &type);
	if (!*st && t)
		*st = lib.api->rank_of(t, &rank);
	if (!*st && t && rank <= SERVE_RANK)
		*st = lib.api->dims_of(t, sh->dims, rank);
	if (t)
		lib.api->release_tensor(t);
	sh->rank = (unsigned int)rank;
	if (*st)
		return -EINVAL;
	if (!t || rank > SERVE_RANK || type != onnx_of(io->type)) {
		snprintf(s->why, sizeof(s->why), "output '%.100s' is not the tensor that the "
			 "model describes", io->name);
		return -ENOTSUP;
	}
	if (io->type == SERVE_BYTES)
		return take_strings(s, i, (size_t)count(sh->rank, sh->dims), st);
	*st = lib.api->tensor_data(s->out[i], &data);
	if (*st)
		return -EINVAL;
	s->out_data[i] = data;
	s->out_bytes[i] = (size_t)count(sh->rank, sh->dims) * type_size(io->type);
	return 0;
}

int ort_run(struct ort_slot *s)
{
	const struct ort_model *m = s->m;
	struct o_status *st = NULL;
	unsigned int i;
	int rc = 0, code;

	*s->why = 0;
	drop_outputs(s);
	for (i = 0; i < m->nin && !st; i++)
		if (s->what->inputs[i].type == SERVE_BYTES)
			st = fill_strings(s, i);
	if (!st)
		st = lib.api->run(m->session, s->run, (const char *const *)m->in,
				  (const struct o_value *const *)s->in, m->nin,
				  (const char *const *)m->out, m->nout, s->out);
	for (i = 0; i < m->nout && !st && !rc; i++) {
		rc = take_output(s, i, &st);
		s->all += s->out_bytes[i];
	}
	code = status(st, s->why, sizeof(s->why));
	return load_relaxed(&s->stopped) ? -ECANCELED : code ? code : rc;
}
