/* SPDX-License-Identifier: Apache-2.0 */
/* pawl/visibility.h - marks the functions that the shared library exports. */
#ifndef PAWL_VISIBILITY_H
#define PAWL_VISIBILITY_H

#define PAWL_API __attribute__((visibility("default")))

/* Around a function with the name of a struct, which g++ -Wshadow takes for its constructor. */
#if defined(__cplusplus) && defined(__GNUC__)
#define PAWL_TAG_BEGIN _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wshadow\"")
#define PAWL_TAG_END _Pragma("GCC diagnostic pop")
#else
#define PAWL_TAG_BEGIN
#define PAWL_TAG_END
#endif

#endif
