/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live weights of pawl infer, and the thread that swaps them while requests read them.
 * The command's thread makes all calls; the vars order the ops' accesses to `live`.
 */
#ifndef PAWL_WEIGHTS_H
#define PAWL_WEIGHTS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "infer.h"

/* The weights of a layer; the var covers all of it. */
struct live {
	pawl_var_t var;
	float *weight, *bias;		/* NULL: the layer has none */
	float *dev_weight, *dev_bias;	/* on the device, if there is one */
	uint64_t stamp, stamp_end;	/* written before and after the others */
};

struct weights {
	const struct work *w;
	struct result *r;
	struct pawl_engine *e;
	struct live *live;		/* [layers] */
	pawl_var_t *vars;		/* of the layers that have weights */

	pthread_t thread;
	bool has_thread;
	sem_t kick, reloaded;
	atomic_bool stop;
	uint64_t serial;		/* of the weights; covered by their vars */
	uint64_t swapped;		/* ns; end of the newest reload */
	int status;			/* of the newest reload */
};

/* Start with the first model's weights.  Returns 0, or a negative errno after a message. */
int weights_init(struct weights *wt, const struct work *w, struct result *r,
		 struct pawl_engine *e);
/* Free the device memory; no op may use it any more, and the engine must still exist. */
void weights_leave(struct weights *wt);
/* Free the weights, also after a failure; no op may use them any more. */
void weights_free(struct weights *wt);

/* Start the thread, if the options request reloads and there are weights. */
int reloader_start(struct weights *wt);
/* Request a reload. */
void reloader_kick(struct weights *wt);
/* Wait for the requested reloads; returns the status of the last one. */
int reloader_stop(struct weights *wt);

#endif
