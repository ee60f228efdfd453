/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of pawl.  Each receives its own argv, whose [0] is the prefix of its
 * messages ("pawl infer"), and returns the exit status: 0 success; 1 failure, or a wrong
 * result; 2 an invalid command line.
 */
#ifndef PAWL_CMD_H
#define PAWL_CMD_H

enum exit_status {
	STATUS_OK = 0,
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
};

int cmd_bench(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_infer(int argc, char **argv);
int cmd_load(int argc, char **argv);
int cmd_mxnet(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_trace(int argc, char **argv);

#endif
