/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planted bugs, and what each breaks; layer 0.  See bug.h.  tests/busted/bugs.list names
 * the tests that must find them.
 */
#ifndef BASE_BUSTED_H
#define BASE_BUSTED_H

#define BUSTED_LIST(X)									\
	X(NO_HELP, "link: queue behind a push that is not linked into all its vars")	\
	X(WAIT_NOT_HELP, "link: wait for an unfinished push instead of helping it")	\
	X(NO_RECORD, "link: overwrite a committed push's tag without a record")		\
	X(NO_SECOND_LOOK, "link: the push's phase is not checked after the word was read")	\
	X(NO_GEN, "link: a push does not check whether its var is still the same")	\
	X(NO_SORT, "push: the accesses stay in the caller's order")			\
	X(GRANT_EARLY, "attach: readers that joined do not hold the next writer")	\
	X(LIST_LOST, "retire: the list of waiting readers is taken before DONE is set")	\
	X(FLIGHT_NO_MB, "wait: no barrier between completion and the waiter check")	\
	X(FLIGHT_FORGOTTEN, "wait: waits for all ops are not woken")			\
	X(SUMS_SWAPPED, "wait: pushes are summed before completions")			\
	X(POOL_ABA, "pool: the tag of a stack of magazines does not change")		\
	X(PRIOQ_ABA, "prioq: the tag of a link does not change")			\
	X(PRIOQ_NO_WALK, "prioq: a removed node is freed before it is unlinked")	\
	X(RING_NO_RECHECK, "ring: head is not checked again")				\
	X(HOARD_OPEN, "ring: a batch's hoard is open before the batch is claimed")	\
	X(PARK_NO_LOOK, "park: no second check for work before sleep")			\
	X(PARK_NO_COND, "park: no second check of the condition before sleep")		\
	X(PARK_NO_MB, "park: no barrier before the second check")			\
	X(UNPARK_NO_MB, "park: no barrier before the check of the sleeper")		\
	X(NO_PASS_ON, "park: the last spinner does not check again")			\
	X(STOP_NO_WAKE, "worker: stop does not wake sleepers")				\
	X(POOL_LEAK, "pool: a leaving thread drops its part of a magazine")		\
	X(POOL_TWICE, "pool: a flushed cache keeps what it returned")			\
	X(CARVE_OVERLAP, "pool: the next carving begins one object too early")		\
	X(SLAB_EARLY, "pool: a slab is freed while one of its objects is in use")	\
	X(BASE_FORGOTTEN, "pool: generations start over in a slab that is used again")	\
	X(COMMIT_BLIND, "arena: the system's refusal of memory is not checked")		\
	X(NO_GRACE, "rcu: deferred functions run without a grace period")		\
	X(RING_OLD_ARRAY, "ring: an abandoned array makes the ring look empty")		\
	X(RING_SHRINK_FULL, "ring: shrinks with elements in it")			\
	X(RING_GROW_SHORT, "ring: growing forgets the newest element")			\
	X(RING_OVERRUN, "ring: it grows one element too late")				\
	X(HIGH_IS_LOW, "queue: a high priority is taken for a low one")			\
	X(REST_BLIND, "queue: a thread that sleeps hides its lane although it has work")	\
	X(NO_LOOK_AROUND, "queue: a thread with its own work never takes that of others")	\
	X(ZERO_JUMPS, "queue: ops that found no room in a ring overtake those in it")	\
	X(HANDOFF_JUMPS, "queue: a hand-over overtakes queued work")			\
	X(CLAIM_NO_WAKE, "park: a sleeper is claimed and not woken")			\
	X(KNOWN_EARLY, "link: a version is KNOWN before its write is complete")		\
	X(RM_NO_REVOKE, "readmostly: fast reads of unfinished pushes are not revoked")	\
	X(RM_NO_MB, "readmostly: no barrier between a reader's count and its check")	\
	X(RM_UNSEEN, "readmostly: a completing reader does not check for a closing rm")	\
	X(PARK_EARLY, "park: a var with a reader is parked")				\
	X(RM_HOLD_KEPT, "readmostly: the hold of the fast readers is not dropped")	\
	X(NAMED_TWICE, "push: a var that is named twice is two accesses")		\
	X(ARG_NOT_COPIED, "push: an op refers to the caller's argument instead of a copy")	\
	X(ASYNC_EARLY, "retire: an asynchronous op completes when its body returns")	\
	X(POISON_STAYS, "error: ops check for inherited errors when none is left")	\
	X(CLEAR_IGNORED, "error: a cleared error still propagates")			\
	X(TRACE_FLAG_ONCE, "trace: a start and a stop at once may leave the wrong flag")	\
	X(STOP_EARLY, "engine: stop does not wait for what is in flight")		\
	X(NAIVE_EARLY, "wait: a naive push returns before its op is complete")		\
	X(WINDOW_IGNORED, "push: the window is not checked")				\
	X(NO_SKIPPING, "retire: an op runs although its inputs are poisoned")		\
	X(INHERITED_TWICE, "retire: whether an op inherits an error is decided again at its end") \
	X(FORK_FORGOTTEN, "thread: a child of fork() takes its parent's engine for its own")	\
	X(RECORD_REUSED, "push: an op may end while threads still record for its push")	\
	X(RUN_EARLY, "push: the wait counter lacks an access")				\
	X(GATE_NO_WAKE, "admit: the completion that opens the gate wakes no pusher")	\
	X(WINDOW_NO_MB, "admit: no barrier between a pusher's count and its sum")	\
	X(EXT_HOARDED, "admit: threads keep chunks of large ops")			\
	X(BATCH_INLINE_FIRST, "batch: inline ops run before the others are queued")	\
	X(BATCH_NESTED, "batch: a batch inside a batch uses its scratch memory")	\
	X(VERSION_MISSED, "retire: a write does not count its version")			\
	X(BLOCK_LEAK, "retire: the block before a granted write is not freed")		\
	X(SAME_GEN, "retire: a deleted var keeps its generation")			\
	X(STALE_RUNS, "retire: an op runs although it lost a var during its push")	\
	X(RELEASE_TWICE, "retire: the release of an op is called twice")		\
	X(TOKEN_TWICE, "retire: an asynchronous op may be completed again")		\
	X(ERROR_STOPS, "retire: an error does not propagate to the next version")	\
	X(ERROR_COUNTED_TWICE, "error: a failure counts twice")				\
	X(ERROR_AGAIN, "error: a reported error is reported again")			\
	X(READY_NO_MB, "ready: no barrier between arming the descriptor and the second take")	\
	X(READY_FORGOTTEN, "ready: a push does not write to the descriptor")		\
	X(GROUP_UNLIMITED, "group: a push beyond a limit is accepted")			\
	X(ROOM_FORGOTTEN, "group: a refused push does not set ROOM_WANTED")		\
	X(INTERRUPT_NO_MB, "wait: no barrier between an interrupt and the search for a wait") \
	X(CQ_NO_WRITE, "cq: a completion does not write to the eventfd")		\
	X(CQ_STAYS_READABLE, "cq: the eventfd of an empty queue is not cleared")		\
	X(CQ_NO_MB, "cq: no barrier between a completion and the check for a waiter")	\
	X(CQ_ONE_TELLS, "cq: only the first completion of a stack notifies the host")	\
	X(CQ_TOLD_ANY, "cq: a late completer sets TOLD in a stack that is not its own")	\
	X(DEADLINE_IGNORED, "cq: an op whose deadline has passed starts")		\
	X(GRAPH_EARLY, "graph: it is freed before its last run is complete")		\
	X(LAUNCH_ABA, "graph: the tag of a stack of launches does not change")		\
	X(GIVEN_UP_STAYS, "wait: an abandoned wait keeps its slot")			\
	X(ENTRY_ABA, "thread: the tag of the list of free entries does not change")	\
	X(LEAVE_COUNTED_TWICE, "thread: completions of a leaving thread briefly count twice")	\
	X(SLOT_KEPT, "thread: a thread's slot is not freed")				\
	X(ENGINE_SAME_ID, "engine: engines that exist at once have the same number")	\
	X(DESTROY_EARLY, "engine: destroy does not wait for what is in flight")		\
	X(DEV_READS_FORGOTTEN, "device: a write does not follow pending reads")		\
	X(DEV_PARKED_LOST, "device: parked ops that are kept are lost when others come")	\
	X(DEV_WAITER_FORGOTTEN, "device: waits for all devices are not woken")		\
	X(EVENT_EARLY, "lane: an event covers one number too many")			\
	X(LANE_NO_FOLLOW, "lane: a stream does not follow another")			\
	X(GRAPH_READS_LOST, "graph: a write inside it does not wait for reads")		\
	X(NODE_FAILED_RUNS, "graph: what depends on a failed node runs")			\
	X(NODE_TAKES_ANY, "graph: a launch takes the next node of another one")		\
	X(NODES_SWAPPED, "graph: of nodes that are ready together the first one is queued last")	\
	X(NODES_NOT_TOLD, "graph: a thread is not woken for nodes that are ready together")	\
	X(GRAPH_STALE, "group: a refreshed graph is not captured again")			\
	X(MX_ARG_EARLY, "compat: the argument of a running body is dropped")		\
	X(MX_ERROR_LOST, "compat: the error of an asynchronous op counts as success")	\
	X(MX_BULK_LOST, "compat: the bulk of a thread that ends is lost")		\
	X(MX_BULK_GOES_ON, "compat: functions of a bulk run after one of them failed")	\
	X(MX_DROP_TWICE, "compat: the deleter of a refused push is called twice")	\
	X(MX_ENGINE_TWICE, "compat: threads that use the engine first each make one")	\
	X(MX_CUT_OFF, "compat: a table that is cut off for lack of memory is no error")

#define BUSTED_ENUM(name, what) BUSTED_##name,
enum { BUSTED_NONE, BUSTED_LIST(BUSTED_ENUM) BUSTED_COUNT };

extern unsigned int pawl_busted;

#endif
