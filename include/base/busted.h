/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planted bugs, layer 0: what each breaks.  See bug.h; a test that looks for races
 * and lost ops must find each of them.
 */
#ifndef BASE_BUSTED_H
#define BASE_BUSTED_H

#define BUSTED_LIST(X)									\
	X(NO_HELP, "link: go behind a push that is not in all its places")		\
	X(WAIT_NOT_HELP, "link: wait for an unfinished push instead of helping it")	\
	X(NO_RECORD, "link: overwrite a committed push's tag without a record")		\
	X(NO_SECOND_LOOK, "link: no look at the own phase after the word was read")	\
	X(NO_GEN, "link: a push does not look whether its var is still the same")	\
	X(NO_SORT, "push: the accesses stay in the caller's order")			\
	X(GRANT_EARLY, "attach: readers that joined do not hold the next writer")	\
	X(LIST_LOST, "retire: the list of waiting readers is taken before DONE is set")	\
	X(FLIGHT_NO_MB, "wait: no barrier between completion and the look for waiters")	\
	X(FLIGHT_FORGOTTEN, "wait: nobody tells who waits for all")			\
	X(SUMS_SWAPPED, "wait: pushes are summed before completions")			\
	X(POOL_ABA, "pool: the tag of a stack of magazines stands still")		\
	X(PRIOQ_ABA, "prioq: the tag of a link stands still")				\
	X(PRIOQ_NO_WALK, "prioq: a removed node is given back before it is unlinked")	\
	X(RING_NO_RECHECK, "ring: no second look at head")				\
	X(HOARD_OPEN, "ring: a batch's hoard is open before the batch is claimed")	\
	X(PARK_NO_LOOK, "park: no second look for work before sleep")			\
	X(PARK_NO_COND, "park: no second look at the condition before sleep")		\
	X(PARK_NO_MB, "park: no barrier before the second look")			\
	X(UNPARK_NO_MB, "park: no barrier before the look at the sleeper")		\
	X(NO_PASS_ON, "park: the last spinner does not look again")			\
	X(STOP_NO_WAKE, "worker: stop does not wake sleepers")

#define BUSTED_ENUM(name, what) BUSTED_##name,
enum { BUSTED_NONE, BUSTED_LIST(BUSTED_ENUM) BUSTED_COUNT };

extern unsigned int pawl_busted;

#endif
