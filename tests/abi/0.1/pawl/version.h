/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/version.h - the version that a program is compiled against; made by make.
 * The one that it runs with: pawl_version().
 */
#ifndef PAWL_VERSION_H
#define PAWL_VERSION_H

#define PAWL_VERSION_MAJOR 0
#define PAWL_VERSION_MINOR 1
#define PAWL_VERSION_PATCH 0
#define PAWL_VERSION_STRING "0.1.0"

#endif
