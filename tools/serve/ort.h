/* SPDX-License-Identifier: Apache-2.0 */
/* ort.h - the backend onnxruntime (ort.c): what graph.c and slot.c call. */
#ifndef PAWL_SERVE_ORT_H
#define PAWL_SERVE_ORT_H

#include "graph.h"

struct ort_model;
struct ort_slot;

/*
 * Open the model of g->file in onnxruntime, and describe it in g.  native is what the reader of
 * pawl knows of the same file.  Blocking.
 */
int ort_load(struct graph *g, const struct graph *native, const struct serve_how *how);
void ort_free(struct ort_model *m);

int ort_plan(struct ort_model *m, const struct serve_model *what,
	     const struct serve_shape *shapes, size_t limit, struct ort_slot **out, char *err,
	     size_t errsize);
void ort_destroy(struct ort_slot *s);
/* The memory of an input, with room for this many bytes; NULL: there is none. */
void *ort_input(struct ort_slot *s, unsigned int i, size_t bytes);
const void *ort_output(const struct ort_slot *s, unsigned int i);
size_t ort_output_bytes(const struct ort_slot *s, unsigned int i);
const struct serve_shape *ort_output_shape(const struct ort_slot *s, unsigned int i);
size_t ort_bytes(const struct ort_slot *s);
/* Before each run, on the thread that launches it, which may also stop it. */
void ort_start(struct ort_slot *s);
void ort_stop(struct ort_slot *s);
int ort_run(struct ort_slot *s);		/* in an op; a negative errno, with: */
const char *ort_why(const struct ort_slot *s);

#endif
