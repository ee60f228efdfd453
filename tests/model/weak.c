// SPDX-License-Identifier: Apache-2.0
#include "rt.h"
bool weak;
void weak_reset(void) {}
u64 weak_load(struct model_site *s, const void *p, u32 size) { (void)s;(void)p;(void)size; return 0; }
void weak_store(struct model_site *s, void *p, u32 size, u64 v) { (void)s;(void)p;(void)size;(void)v; }
u64 weak_rmw(struct model_site *s, void *p, u32 size, u64 v) { (void)s;(void)p;(void)size;(void)v; return 0; }
bool weak_cas(struct model_site *s, void *p, u32 size, void *old, u64 v) { (void)s;(void)p;(void)size;(void)v;(void)old; return false; }
bool weak_pair_cas(struct model_site *s, u64 *p, u64 *old, const u64 *v) { (void)s;(void)p;(void)v;(void)old; return false; }
void weak_fence(struct model_site *s) { (void)s; }
void weak_plain(const void *p, u32 size, bool write) { (void)p;(void)size;(void)write; }
void weak_relax(void) {}
void weak_sync(u32 a, u32 b) { (void)a;(void)b; }
