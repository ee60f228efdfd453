/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sanitizer is in use: 0 or 1, with gcc and with clang.  SANITIZED: each step of a test
 * costs ten times as much, also under emulation (tests/cross).  BRIEF: a test repeats less, because
 * of that or because PAWL_TEST_SHORT is set.
 */
#ifndef TESTS_SANITIZED_H
#define TESTS_SANITIZED_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZED 1
#endif
#endif
#ifndef ADDRESS_SANITIZED
#define ADDRESS_SANITIZED 0
#endif

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif

#ifdef PAWL_EMULATED
#define SANITIZED 1
#else
#define SANITIZED (ADDRESS_SANITIZED || THREAD_SANITIZED)
#endif
#define BRIEF (SANITIZED || getenv("PAWL_TEST_SHORT"))

#endif
