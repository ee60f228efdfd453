/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools/serve/model.h - what the front of the server (HTTP, queue, batches) needs from models.
 *
 * A model is one version of one model, read from a folder.  It is not changed after the load,
 * and all threads may use it.  A slot is the memory of one run of a model with given shapes of
 * the inputs: all buffers are planned and allocated when it is created, and launches allocate
 * nothing.  A slot has one launch in flight at a time.
 */
#ifndef PAWL_SERVE_MODEL_H
#define PAWL_SERVE_MODEL_H

#include <stdint.h>
#include <stddef.h>
#include <pawl/engine.h>

enum serve_type {
	SERVE_BOOL, SERVE_UINT8, SERVE_UINT16, SERVE_UINT32, SERVE_UINT64,
	SERVE_INT8, SERVE_INT16, SERVE_INT32, SERVE_INT64,
	SERVE_FP16, SERVE_FP32, SERVE_FP64, SERVE_BYTES
};

#define SERVE_RANK 8
struct serve_io {
	const char *name;
	enum serve_type type;
	unsigned int rank;
	int64_t dims[SERVE_RANK];	/* -1: any size */
	bool any;			/* of any rank; then rank and dims are 1 and { -1 } */
};

struct serve_shape {
	unsigned int rank;
	int64_t dims[SERVE_RANK];	/* all given */
};

struct serve_model {
	const char *name, *platform;	/* "onnx", "mxnet", "onnxruntime_onnx" */
	const char *backend;		/* that runs it: "native", "onnxruntime" */
	int64_t version;
	unsigned int ninputs, noutputs;
	const struct serve_io *inputs, *outputs;
	bool batch;			/* dims[0] of all inputs and outputs is -1, and may be shared */
	size_t bytes;			/* of weights */
	/* private behind this */
};

struct serve_slot;

enum serve_backend { BACKEND_AUTO, BACKEND_NATIVE, BACKEND_ONNXRUNTIME };
#define SERVE_PROVIDER 256
struct serve_how {
	enum serve_backend backend;
	/* of onnxruntime: */
	bool rows_apart;		/* requests may share a run, says the user */
	unsigned int threads;		/* of a run; 0: 1 */
	const char *provider;		/* NAME [KEY=VALUE]..., or NULL: the CPU */
};

/*
 * Where libonnxruntime.so is: a file, a folder, or NULL: where the loader looks.  Called before
 * the process has other threads.  The path is not copied.
 */
void serve_onnxruntime(const char *path);
/*
 * Read the version in folder dir (model.onnx, or model-symbol.json and model-0000.params), or,
 * for dir, a file of ONNX.
 * Returns 0 or a negative errno, with a text in err that names the file and all that is refused:
 * -ENOENT, -EINVAL (the file is broken), -ENOTSUP (operators), -ENOMEM.
 */
int serve_model_load(const char *dir, const char *name, int64_t version,
		     const struct serve_how *how, struct serve_model **out, char *err,
		     size_t errsize);
void serve_model_free(struct serve_model *m);
/* The memory that a load, and a slot, may need from now on: else -ENOMEM. */
void serve_model_limit(uint64_t bytes);
/* Free what is kept for the plans of other slots, for example after the last of a model. */
void serve_cache_empty(void);

/*
 * Begin to plan a run with these shapes, one per input.  serve_slot_plan() plans the next piece,
 * which takes about as long as one layer, and returns -EAGAIN until the slot can be launched.
 * Both return -EINVAL (a shape that the model refuses), -ENOTSUP or -ENOMEM, with a text in err,
 * which exists until the plan has ended.  After an error of the second, destroy the slot.
 */
int serve_slot_create(struct serve_model *m, struct pawl_engine *e,
		      const struct serve_shape *shapes, struct serve_slot **out, char *err,
		      size_t errsize);
int serve_slot_plan(struct serve_slot *s);
void serve_slot_destroy(struct serve_slot *s);	/* no launch is in flight */
/*
 * The memory of an input, with room for as many bytes as its shape says; of BYTES as many as
 * there are, and NULL without memory.
 */
void *serve_slot_input(struct serve_slot *s, unsigned int i, size_t bytes);
/* Of a backend, these are known after a run, and may differ from run to run. */
const void *serve_slot_output(struct serve_slot *s, unsigned int i);
size_t serve_slot_output_bytes(const struct serve_slot *s, unsigned int i);
const struct serve_shape *serve_slot_output_shape(struct serve_slot *s, unsigned int i);
/*
 * Whether each row of the outputs depends on the same row of the inputs alone, for each number
 * of rows.  Slots whose shapes differ in that number alone say the same.
 */
bool serve_slot_apart(const struct serve_slot *s);
/* Its memory, about.  Of a backend it changes with each run. */
size_t serve_slot_bytes(const struct serve_slot *s);
/*
 * Return memory of its tensors to the kernel until the next run: up to most bytes, behind the
 * first ones that earlier calls have returned since the last run.  Returns how much that was.
 */
size_t serve_slot_empty(struct serve_slot *s, size_t first, size_t most);
/* Move the slot to another engine; no launch is in flight.  -ENOMEM leaves it unchanged. */
int serve_slot_move(struct serve_slot *s, struct pawl_engine *to);

/*
 * Run the model on what is in the input buffers.  The layers are the ops of a graph, whose
 * launch reads the var weights.  A completion with tag and status arrives in cq when all of them
 * are complete.  A deadline ends the run between layers: -ETIMEDOUT.  serve_slot_cancel() ends
 * it likewise: -ECANCELED.
 */
struct serve_launch {
	pawl_var_t weights;
	pawl_cq_t cq;
	uint64_t tag;
	int32_t priority;
	int64_t deadline_ns;		/* CLOCK_MONOTONIC; 0: none */
	bool timed;			/* keep when each op ran */
};
int serve_slot_launch(struct serve_slot *s, const struct serve_launch *how);
void serve_slot_cancel(struct serve_slot *s);

/* After a run that failed because of its data: the operator, and why. */
void serve_slot_failure(struct serve_slot *s, char *text, size_t size);

/* One op of the last run, if that was timed: a layer, or a part of a large one. */
struct serve_step {
	const char *name, *op;		/* of the model's file */
	uint64_t begin_ns, end_ns;	/* CLOCK_MONOTONIC */
	int thread;			/* Linux's number */
};
/* Step i, in an order that a serial program could run; false: there are no more. */
bool serve_slot_step(const struct serve_slot *s, unsigned int i, struct serve_step *out);

#endif
