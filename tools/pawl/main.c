// SPDX-License-Identifier: Apache-2.0
/* The pawl command: selects the subcommand. */

#include <stdio.h>
#include <string.h>
#include <pawl/engine.h>

#include "cmd.h"

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct command {
	const char *name;
	const char *title;	/* argv[0] of the subcommand */
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{ "bench", "pawl bench", cmd_bench, "measure the engine on this host" },
#ifdef CONFIG_SERVE
	{ "check", "pawl check", cmd_check,
	  "say what runs the models of files and folders, or what blocks them" },
	{ "demo", "pawl demo", cmd_demo,
	  "start pawl serve, send it handwritten digits, and check its answers" },
#endif
	{ "infer", "pawl infer", cmd_infer,
	  "classify handwritten digits; every layer of every request is an op" },
#ifdef CONFIG_LOAD
	{ "load", "pawl load", cmd_load,
	  "measure the latency of an inference server" },
#endif
	{ "mxnet", "pawl mxnet", cmd_mxnet,
	  "run a program that uses Apache MXNet, with pawl as its engine" },
	{ "record", "pawl record", cmd_record,
	  "show and check a recording (PAWL_RECORD=file)" },
	{ "replay", "pawl replay", cmd_replay,
	  "push a recorded workload again, and check its order" },
#ifdef CONFIG_SERVE
	{ "serve", "pawl serve", cmd_serve,
	  "answer inference requests over HTTP and gRPC with ONNX and MXNet models" },
#endif
	{ "top", "pawl top", cmd_top, "show what the engines of a running process do" },
	{ "trace", "pawl trace", cmd_trace, "write a trace of a running process, or of a command" },
	{ "version", "pawl version", cmd_version, "print the version of the library" },
	{ "help", "pawl help", cmd_help, "print this help, or that of a command" },
};

#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *find(const char *name)
{
	size_t i;

	for (i = 0; i < NCOMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static void usage(FILE *f)
{
	size_t i;

	fputs("Usage: pawl COMMAND [OPTION]...\n"
	      "Run work through pawl, a dependency engine.\n\n"
	      "Commands:\n", f);
	for (i = 0; i < NCOMMANDS; i++)
		fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\n'pawl COMMAND --help' lists the options of a command; see also pawl(1).\n", f);
}

static int unknown(const char *what, const char *name)
{
	fprintf(stderr, "pawl: no %s '%s'; 'pawl help' lists the commands\n", what, name);
	return STATUS_USAGE;
}

static int cmd_version(int argc, char **argv)
{
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("Usage: pawl version\nPrint the version of the library.");
		return STATUS_OK;
	}
	if (argc > 1) {
		fprintf(stderr, "%s: takes no arguments, not '%s'\n", argv[0], argv[1]);
		return STATUS_USAGE;
	}
	printf("pawl %s\n", pawl_version());
	return STATUS_OK;
}

static int run(const struct command *cmd, int argc, char **argv)
{
	static char title[32];

	snprintf(title, sizeof(title), "%s", cmd->title);
	argv[0] = title;
	return cmd->run(argc, argv);
}

static int cmd_help(int argc, char **argv)
{
	char option[] = "--help", *args[] = { argv[0], option, NULL };
	const struct command *cmd;

	if (argc > 2) {
		fprintf(stderr, "%s: takes one command, and '%s' is a second\n", argv[0],
			argv[2]);
		return STATUS_USAGE;
	}
	cmd = argc == 2 ? find(argv[1]) : NULL;
	if (argc == 2 && !cmd)
		return unknown("command", argv[1]);
	if (cmd && cmd->run != cmd_help && cmd->run != cmd_version)
		return run(cmd, 2, args);
	usage(stdout);
	return STATUS_OK;
}

int main(int argc, char **argv)
{
	const struct command *cmd;
	int status;

	if (argc < 2) {
		usage(stderr);
		return STATUS_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		usage(stdout);
		status = STATUS_OK;
	} else if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		status = cmd_version(1, argv);
	} else if (argv[1][0] == '-') {
		return unknown("option", argv[1]);
	} else {
		cmd = find(argv[1]);
		if (!cmd)
			return unknown("command", argv[1]);
		status = run(cmd, argc - 1, argv + 1);
	}
	/* A full disk or a closed pipe must not look like success. */
	if (fflush(stdout) || ferror(stdout)) {
		perror("pawl: standard output");
		return status ? status : STATUS_FAILED;
	}
	return status;
}
