/* SPDX-License-Identifier: Apache-2.0 */
/* dmlc/base.h - empty, since nothing of it is needed here. */
#ifndef PAWL_COMPAT_DMLC_BASE_H
#define PAWL_COMPAT_DMLC_BASE_H

#include <cstddef>
#include <cstdint>

#ifndef DMLC_USE_CXX11
#define DMLC_USE_CXX11 1
#endif

#endif
