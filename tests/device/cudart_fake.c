// SPDX-License-Identifier: Apache-2.0
/* For fakecudart.c: the fake device once more. */
#include "fake.c"
