// SPDX-License-Identifier: Apache-2.0
/* The server with the models of fake.c: what the tests of its protocol start. */
#include <stdio.h>
#include "../../../tools/pawl/cmd.h"

int main(int argc, char **argv)
{
	return cmd_serve(argc, argv);
}
