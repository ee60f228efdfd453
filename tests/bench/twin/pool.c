// SPDX-License-Identifier: Apache-2.0
/* pool.c - objects of one type: one mutex, one free list, 4 KiB pages. */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

#define PAGE 4096

void *twin_alloc(size_t size)
{
	void *p = malloc(size);

	if (!p) {
		fprintf(stderr, "twin: out of memory\n");
		abort();
	}
	return p;
}

void twin_pool_init(struct twin_pool *p, size_t size)
{
	pthread_mutex_init(&p->lock, NULL);
	p->free = NULL;
	p->size = (size + 15) & ~(size_t)15;
	p->pages = NULL;
	p->npages = 0;
	p->maxpages = 0;
}

void twin_pool_finish(struct twin_pool *p)
{
	while (p->npages)
		free(p->pages[--p->npages]);
	free(p->pages);
	pthread_mutex_destroy(&p->lock);
}

/* Under the lock. */
static void add_page(struct twin_pool *p)
{
	char *page;
	size_t i;

	if (p->npages == p->maxpages) {
		p->maxpages = p->maxpages ? 2 * p->maxpages : 64;
		p->pages = realloc(p->pages, p->maxpages * sizeof(*p->pages));
	}
	if (!p->pages || posix_memalign((void **)&page, PAGE, PAGE)) {
		fprintf(stderr, "twin: out of memory\n");
		abort();
	}
	p->pages[p->npages++] = page;
	for (i = PAGE / p->size; i--;) {
		*(void **)(page + i * p->size) = p->free;
		p->free = page + i * p->size;
	}
}

void *twin_pool_new(struct twin_pool *p)
{
	void *obj;

	pthread_mutex_lock(&p->lock);
	if (!p->free)
		add_page(p);
	obj = p->free;
	p->free = *(void **)obj;
	pthread_mutex_unlock(&p->lock);
	return obj;
}

void twin_pool_delete(struct twin_pool *p, void *obj)
{
	pthread_mutex_lock(&p->lock);
	*(void **)obj = p->free;
	p->free = obj;
	pthread_mutex_unlock(&p->lock);
}
