// SPDX-License-Identifier: Apache-2.0
/* The server with the models of fake.c: what the tests of its protocol start. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include "../../../tools/pawl/cmd.h"

/* As libraries have: a thread from the start that blocks no signal. */
static void *foreign(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (pthread_create(&t, NULL, foreign, NULL))
		return 1;
	return cmd_serve(argc, argv);
}
