/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of pawl.  Each gets its own argv, whose [0] is what its messages
 * begin with ("pawl infer"), and returns the exit status: 0 done; 1 failed, or what
 * was run gave a wrong answer; 2 the command line makes no sense.
 */
#ifndef PAWL_CMD_H
#define PAWL_CMD_H

enum exit_status {
	STATUS_OK = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
};

int cmd_infer(int argc, char **argv);
int cmd_mxnet(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_replay(int argc, char **argv);

#endif
