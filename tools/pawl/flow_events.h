/* SPDX-License-Identifier: Apache-2.0 */
/* The events of one thread of a large recording, one after the other. */
#ifndef PAWL_FLOW_EVENTS_H
#define PAWL_FLOW_EVENTS_H

#include "reader.h"

#define DIFFERS 1			/* not as a recording has it in the order of times: see flow_run() */

/* What an event is relative to. */
struct event_state {
	uint64_t cycles;
	uint32_t push_op, push_gen, begin_op, begin_gen, open_op, open_gen;
};

struct event {
	unsigned int kind;
	uint64_t time;			/* cycles */
	uint32_t index, gen;
	uint64_t name, number, n, var, vargen;
	int64_t prio, status;
	unsigned int prop;
	uint64_t device_kind, device;
	const unsigned char *list;	/* n of them, or the text of a name */
};

struct line_events {
	const struct stream *s;
	size_t piece;			/* the next */
	unsigned char *buf;
	size_t at, n, cap;
	struct event_state st;
	struct event ev;		/* the present one; what it points to is in buf */
};

/* Numbers in an event, up to the end of the buffer. */
struct event_in {
	const unsigned char *p, *end;
	bool cut;
};

uint64_t event_number(struct event_in *in);
/* Read the first event, or the next one.  *some is false if there is none. */
int events_open(struct reader *rd, struct line_events *l, bool *some);
int events_next(struct reader *rd, struct line_events *l, bool *some);

#endif
