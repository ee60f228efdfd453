/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sort an array in place.  Unlike qsort() it never allocates, and it calls inline functions.
 */
#ifndef CORE_SORT_H
#define CORE_SORT_H

#include <base/compiler.h>

#define SORT_SHORT	32u	/* such arrays are often almost in order */

typedef bool (*sort_less_fn)(const void *array, u32 i, u32 j);
typedef void (*sort_swap_fn)(void *array, u32 i, u32 j);

static __always_inline_fn void sort_sift(void *array, u32 root, u32 n, sort_less_fn less,
					 sort_swap_fn swap)
{
	u32 child;

	while ((child = 2 * root + 1) < n) {
		if (child + 1 < n && less(array, child, child + 1))
			child++;
		if (!less(array, root, child))
			return;
		swap(array, root, child);
		root = child;
	}
}

/* Insertion sort for short arrays, otherwise heapsort. */
static __always_inline_fn void sort_array(void *array, u32 n, sort_less_fn less,
					  sort_swap_fn swap)
{
	u32 i, j;

	if (n <= SORT_SHORT) {
		for (i = 1; i < n; i++)
			for (j = i; j && less(array, j, j - 1); j--)
				swap(array, j, j - 1);
		return;
	}
	for (i = n / 2; i--; )
		sort_sift(array, i, n, less, swap);
	for (i = n - 1; i; i--) {
		swap(array, 0, i);
		sort_sift(array, 0, i, less, swap);
	}
}

#endif
