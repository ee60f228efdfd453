/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live weights of pawl infer, and the thread that swaps them while requests read
 * them.  Calls are the command's thread's; ops read `live` under the vars.
 */
#ifndef PAWL_WEIGHTS_H
#define PAWL_WEIGHTS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "infer.h"

/* Those of a layer; all of it is covered by the var. */
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
	pawl_var_t *vars;		/* of those that have any */

	pthread_t thread;
	bool has_thread;
	sem_t kick, reloaded;
	atomic_bool stop;
	uint64_t serial;		/* of the weights; covered by their vars */
	uint64_t swapped;		/* ns; end of the newest reload */
	int status;			/* of the newest reload */
};

/* The first model's to begin with.  0, or a negative errno after a message. */
int weights_init(struct weights *wt, const struct work *w, struct result *r,
		 struct pawl_engine *e);
/* What is on the device; when no op can use it any more, and before the engine goes. */
void weights_leave(struct weights *wt);
/* However far it came; when no op can use them any more. */
void weights_free(struct weights *wt);

/* Start the thread, if the options say so and there are weights. */
int reloader_start(struct weights *wt);
/* Ask for a reload. */
void reloader_kick(struct weights *wt);
/* Wait for the reloads that were asked for: the status of the last one. */
int reloader_stop(struct weights *wt);

#endif
