// SPDX-License-Identifier: Apache-2.0
/*
 * onnx_ext.c - data of tensors that lies in files beside the model.
 *
 * The model names the files, and it is untrusted: a name is a path below the folder of the model,
 * without "..", and nothing on it is a symbolic link.  The data is read into the memory of the
 * constant, as that of the model's file is: a file that shrinks later does no harm.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx.h"

struct place {
	const char *file;
	uint64_t offset, length;	/* length: UINT64_MAX if it is not stated */
};

static bool number(const char *text, uint64_t *v)
{
	char *end;

	errno = 0;
	*v = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

static int place_of(struct graph *g, const Onnx__TensorProto *t, struct place *at)
{
	const char *key, *value;
	size_t i;
	bool ok = true;

	*at = (struct place){ .length = UINT64_MAX };
	for (i = 0; i < t->n_external_data && ok; i++) {
		key = t->external_data[i]->key ? t->external_data[i]->key : "";
		value = t->external_data[i]->value ? t->external_data[i]->value : "";
		if (!strcmp(key, "location"))
			at->file = value;
		else if (!strcmp(key, "offset"))
			ok = number(value, &at->offset);
		else if (!strcmp(key, "length"))
			ok = number(value, &at->length);
	}
	return ok && at->file ? 0 :
		refuse(g, -EINVAL, "tensor '%s': where its data is in another file is not clear",
		       t->name ? t->name : "");
}

/* Open a file below the folder of the model.  Returns the descriptor, or a negative errno. */
static int open_below(const char *model, const char *path)
{
	const char *slash = strrchr(model, '/');
	char *folder = slash ? strndup(model, (size_t)(slash - model) + 1) : strdup(".");
	char name[256];
	int fd, next;
	size_t n;

	if (!folder)
		return -ENOMEM;
	fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	free(folder);
	if (fd < 0)
		return -errno;
	for (;;) {
		n = strcspn(path, "/");
		if (!n || n >= sizeof(name) || (n == 2 && !memcmp(path, "..", 2))) {
			close(fd);
			return -EPERM;
		}
		memcpy(name, path, n);
		name[n] = 0;
		path += n;
		path += *path == '/';
		/* a FIFO must not block the load */
		next = openat(fd, name, O_CLOEXEC | O_NOFOLLOW |
			      (*path ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK));
		n = (size_t)errno;
		close(fd);
		if (next < 0)
			return -(int)n;
		fd = next;
		if (!*path)
			return fd;
	}
}

static int read_all(int fd, char *to, uint64_t bytes, uint64_t offset)
{
	ssize_t n;

	while (bytes) {
		n = pread(fd, to, bytes < 1 << 30 ? bytes : 1 << 30, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		to += n;
		offset += (uint64_t)n;
		bytes -= (uint64_t)n;
	}
	return 0;
}

int onnx_external(struct graph *g, const Onnx__TensorProto *t, size_t bytes, void *to)
{
	const char *name = t->name ? t->name : "";
	uint64_t length;
	struct place at;
	struct stat st;
	int fd, rc;

	rc = place_of(g, t, &at);
	if (rc)
		return rc;
	if (to && at.length != UINT64_MAX && at.length != bytes)
		return refuse(g, -EINVAL, "tensor '%s': %llu bytes of '%s' where %zu are needed",
			      name, (unsigned long long)at.length, at.file, bytes);
	fd = open_below(g->file, at.file);
	if (fd < 0)
		return refuse(g, fd == -ENOMEM ? fd : -EINVAL,
			      "tensor '%s': its file '%s' is %s", name, at.file,
			      fd == -EPERM || fd == -ELOOP ?
			      "not below the folder of the model, without links" : strerror(-fd));
	length = to ? bytes : at.length == UINT64_MAX ? 0 : at.length;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		rc = refuse(g, -EINVAL, "tensor '%s': '%s' is not a regular file", name, at.file);
	else if (at.offset > (uint64_t)st.st_size ||
		 length > (uint64_t)st.st_size - at.offset)
		rc = refuse(g, -EINVAL, "tensor '%s': '%s' has %lld bytes, and not %llu from %llu",
			    name, at.file, (long long)st.st_size, (unsigned long long)length,
			    (unsigned long long)at.offset);
	else if (to && (rc = read_all(fd, to, bytes, at.offset)))
		rc = refuse(g, -EINVAL, "tensor '%s': '%s': %s", name, at.file, strerror(-rc));
	close(fd);
	if (!rc && !to) {
		/* what a library would read for this model */
		g->outside += length;
		if (g->outside > g->limit)
			rc = refuse(g, -EINVAL, "it needs more than %zu bytes", g->limit);
	}
	return rc;
}

/* ---- all of them, before another library reads the model ---------------------------- */

static int check_graph(struct graph *g, const Onnx__GraphProto *gp);

static int check_tensor(struct graph *g, const Onnx__TensorProto *t)
{
	return t && onnx_is_external(t) ? onnx_external(g, t, 0, NULL) : 0;
}

static int check_sparse(struct graph *g, const Onnx__SparseTensorProto *t)
{
	int rc = t ? check_tensor(g, t->values) : 0;

	return rc || !t ? rc : check_tensor(g, t->indices);
}

static int check_node(struct graph *g, const Onnx__NodeProto *n)
{
	size_t i, k;
	int rc = 0;

	for (i = 0; i < n->n_attribute && !rc; i++) {
		const Onnx__AttributeProto *a = n->attribute[i];

		rc = check_tensor(g, a->t);
		if (!rc)
			rc = check_sparse(g, a->sparse_tensor);
		if (!rc && a->g)
			rc = check_graph(g, a->g);
		for (k = 0; k < a->n_tensors && !rc; k++)
			rc = check_tensor(g, a->tensors[k]);
		for (k = 0; k < a->n_sparse_tensors && !rc; k++)
			rc = check_sparse(g, a->sparse_tensors[k]);
		for (k = 0; k < a->n_graphs && !rc; k++)
			rc = check_graph(g, a->graphs[k]);
	}
	return rc;
}

static int check_graph(struct graph *g, const Onnx__GraphProto *gp)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < gp->n_initializer && !rc; i++)
		rc = check_tensor(g, gp->initializer[i]);
	for (i = 0; i < gp->n_sparse_initializer && !rc; i++)
		rc = check_sparse(g, gp->sparse_initializer[i]);
	for (i = 0; i < gp->n_node && !rc; i++)
		rc = check_node(g, gp->node[i]);
	return rc;
}

int onnx_check_external(struct graph *g, const Onnx__ModelProto *m)
{
	int rc = check_graph(g, m->graph);
	size_t i, k;

	for (i = 0; i < m->n_functions && !rc; i++)
		for (k = 0; k < m->functions[i]->n_node && !rc; k++)
			rc = check_node(g, m->functions[i]->node[k]);
	for (i = 0; i < m->n_training_info && !rc; i++) {
		if (m->training_info[i]->initialization)
			rc = check_graph(g, m->training_info[i]->initialization);
		if (!rc && m->training_info[i]->algorithm)
			rc = check_graph(g, m->training_info[i]->algorithm);
	}
	return rc;
}
