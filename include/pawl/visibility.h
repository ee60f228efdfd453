/* SPDX-License-Identifier: Apache-2.0 */
/* pawl/visibility.h - what the shared library shows. */
#ifndef PAWL_VISIBILITY_H
#define PAWL_VISIBILITY_H

#define PAWL_API __attribute__((visibility("default")))

#endif
