// SPDX-License-Identifier: Apache-2.0
/* For fakecudart.c: its messages. */
#include "../../pool/err.c"
