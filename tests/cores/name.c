// SPDX-License-Identifier: Apache-2.0
/* The names of the engine's pooled objects, for the tables of cores.c. */
#include <core/engine.h>
#include <pool/internal.h>
#include "name.h"
#include "sim.h"

void cores_names(struct pawl_engine *e)
{
	struct pool_full *f;

	for (f = e->arena->pools; f; f = f->next) {
		sim_name(f->name, f->obj.start, f->obj.bytes, f->p.size);
		sim_name("magazine", f->mag.start, f->mag.bytes, sizeof(struct pool_mag));
		sim_name("slab", f->objs.side.start, f->objs.side.bytes, 64);
		sim_name("slab", f->mag_slabs.side.start, f->mag_slabs.side.bytes, 64);
	}
}
